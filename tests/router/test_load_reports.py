"""Reports from the field about load, and what they say of us."""

from collections import Counter

import pytest

from router import Decision
from tests.router.fleet import Fleet, prompt


def send(fleet: Fleet, url: str, seed: int, tokens: int) -> Decision:
    """A request under way at that worker."""
    others = [worker.url for worker in fleet.pool.workers if worker.url != url]
    ids = prompt(seed, tokens)
    decision = fleet.router.decide(fleet.request(ids, exclude=others))
    decision.sent()
    return decision


def chosen(fleet: Fleet, ids: list[int]) -> str:
    """Who would get a request now."""
    return fleet.router.explain(fleet.request(ids)).chosen.url


def test_a_cold_request_does_not_go_to_the_busiest() -> None:
    """sgl-project/sglang#14305: on a miss the smallest tree won, whatever its load.

    w1 holds little and has 50 requests in flight, w2 holds much and is idle.
    """
    fleet = Fleet(2)
    fleet.store("w2", prompt(1, 16_000))
    for number in range(50):
        send(fleet, "w1", 100 + number, 320)
    assert chosen(fleet, prompt(2, 1_600)) == "w2"


def test_an_imbalance_does_not_throw_affinity_away() -> None:
    """sgl-project/sglang#32195: beyond a threshold only the load counted.

    Loads of 40, 41 and 80 requests; the one with 41 holds the prompt.
    """
    fleet, ids = Fleet(3), prompt(1, 3_200)
    fleet.store("w2", ids)
    for url, count in (("w1", 40), ("w2", 41), ("w3", 80)):
        for number in range(count):
            send(fleet, url, 1_000 * int(url[1]) + number, 64)
    assert chosen(fleet, ids + prompt(2, 64)) == "w2"


def test_tokens_count_not_requests() -> None:
    """smg-project/smg#1621: three long requests saturated an engine, unseen.

    Scaled down a hundredfold: 3 of 20,000 tokens here, 30 of 160 there.
    """
    fleet = Fleet(2)
    for number in range(3):
        send(fleet, "w1", number, 20_000)
    for number in range(30):
        send(fleet, "w2", 100 + number, 160)
    assert chosen(fleet, prompt(7, 5_120)) == "w2"


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
def test_equal_workers_get_equal_shares(at_once: bool) -> None:
    """ai-dynamo/dynamo#7836: by deterministic ties two of five workers got nothing."""
    fleet, served = Fleet(5), Counter[str]()
    under_way: list[Decision] = []
    for number in range(500):
        decision = fleet.router.decide(fleet.request(prompt(number, 160)))
        decision.sent()
        under_way.append(decision)
        served[decision.worker.url] += 1
        fleet.clock += 0.02
        if not at_once or len(under_way) > 20:
            under_way.pop(0).finished(None)
    assert len(served) == 5
    assert all(0.15 * 500 <= count <= 0.25 * 500 for count in served.values())


def test_answers_to_one_prompt_are_not_all_written_by_one_worker() -> None:
    """vllm-project/router#179: 480 requests of a prefix, and one engine got them all.

    Each finds the prompt cached and is next to nothing to prefill, but its answer is
    decoded for seconds.
    """
    fleet, served, ids = Fleet(8), Counter[str](), prompt(1, 2_000)
    under_way: list[Decision] = []
    for _ in range(480):
        decision = fleet.router.decide(fleet.request(ids))
        decision.sent()
        fleet.clock += 0.02
        decision.first_token()
        under_way.append(decision)
        served[decision.worker.url] += 1
        if len(under_way) > 200:
            under_way.pop(0).finished(None)
    assert len(served) == 8
    assert max(served.values()) < 0.25 * 480
