"""Cold prompts among workers that cost the same."""

from collections import Counter

from tests.router.fleet import Fleet, prompt


def test_a_worker_that_began_anew_gets_its_share_and_no_more() -> None:
    """Its cache is empty, those of the others are full: room is no reason to crowd it.

    It got twice its share. Where workers restart now and then, that cost the others a
    fifth of theirs, 0.3 points of the hit rate, and a fifth of the p90 TTFT.
    """
    fleet, served = Fleet(4), Counter[str]()
    for number, worker in enumerate(fleet.pool.workers):
        worker.cache_blocks = worker.knowledge[0].history.capacity_blocks = 1_000
        if number:
            fleet.store(worker.url, prompt(1_000 + number, 16_000))
    for number in range(80):
        decision = fleet.router.decide(fleet.request(prompt(number, 320)))
        decision.sent()
        fleet.clock += 0.02
        decision.first_token()
        decision.finished(None)
        fleet.clock += 1
        served[decision.worker.url] += 1
    assert set(served.values()) == {20}
