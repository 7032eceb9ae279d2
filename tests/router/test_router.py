"""Where requests go: affinity against load, explained and booked."""

import random
from collections import Counter

import msgspec
import pytest

from router import NoCandidate, Router, RouteRequest, Usage
from router.kv_cache_aware import KvCacheAware
from tests.router.fleet import Clock, Fleet, prompt


def test_a_prompt_goes_where_its_prefix_is() -> None:
    """The longest held prefix wins among idle workers, and is predicted in tokens."""
    fleet = Fleet(3)
    ids = prompt(1, 1_000)
    fleet.store("w2", ids[:480])
    fleet.store("w3", ids[:800])
    decision = fleet.router.decide(fleet.request(ids))
    assert decision.worker.url == "w3"
    assert (decision.hit_tokens, decision.best_hit_tokens) == (800, 800)
    assert decision.prompt_tokens == 1_000
    assert decision.rendering is not None
    assert decision.rendering.block_size == 16
    assert [hop.worker.url for hop in decision.hops] == ["w3"]


def test_a_cold_prompt_goes_to_the_idle_worker() -> None:
    """Not to the smaller cache."""
    fleet = Fleet(2)
    fleet.store("w1", prompt(1, 64))
    fleet.store("w2", prompt(2, 16_000))
    for _ in range(50):
        fleet.worker("w1").ledger(0).book(100, 10, prefill_s=None)
    assert fleet.router.decide(fleet.request(prompt(3, 500))).worker.url == "w2"


def test_an_imbalance_does_not_throw_affinity_away() -> None:
    """Of 40, 41 and 80 in flight, the warm 41 is better than the cold 40."""
    fleet = Fleet(3)
    ids = prompt(1, 4_000)
    fleet.store("w2", ids)
    for url, requests in (("w1", 40), ("w2", 41), ("w3", 80)):
        for _ in range(requests):
            fleet.worker(url).ledger(0).book(100, 10, prefill_s=None)
    assert fleet.router.decide(fleet.request(ids)).worker.url == "w2"


def test_few_long_prompts_weigh_more_than_many_short() -> None:
    """Load is tokens: 3 x 200,000 against 30 x 200."""
    for policy in ("kv_cache_aware", "least_loaded"):
        fleet = Fleet(2, policy=policy)
        for _ in range(3):
            fleet.worker("w1").ledger(0).book(200_000, 10, prefill_s=None)
        for _ in range(30):
            fleet.worker("w2").ledger(0).book(200, 10, prefill_s=None)
        decision = fleet.router.decide(fleet.request(prompt(1, 50_000)))
        assert decision.worker.url == "w2"


@pytest.mark.parametrize("policy", ["kv_cache_aware", "least_loaded", "round_robin"])
@pytest.mark.parametrize("keep", [0, 1, 7, 500], ids=lambda keep: f"{keep}_at_a_time")
def test_equal_workers_share_unique_prompts(policy: str, keep: int) -> None:
    """500 prompts over 5 workers, one after the other or together: 15 to 25 % each."""
    fleet = Fleet(5, policy=policy)
    going = []
    counts: Counter[str] = Counter()
    for seed in range(500):
        decision = fleet.router.decide(fleet.request(prompt(seed, 20 + seed % 90)))
        counts[decision.worker.url] += 1
        decision.sent()
        going.append(decision)
        if len(going) > keep:
            going.pop(0).finished(Usage(prompt_tokens=100, completion_tokens=20))
    assert len(counts) == 5
    assert all(75 <= count <= 125 for count in counts.values())


def test_load_beats_affinity_when_saturated() -> None:
    """A warm worker with a long queue is left alone."""
    fleet = Fleet(2)
    ids = prompt(1, 2_000)
    fleet.store("w1", ids)
    fleet.worker("w1").ledger(0).book(100_000, 10, prefill_s=None)
    decision = fleet.router.decide(fleet.request(ids))
    assert decision.worker.url == "w2"
    assert (decision.hit_tokens, decision.best_hit_tokens) == (0, 1_984)


def test_siblings_find_each_other_and_a_hot_prefix_replicates() -> None:
    """100 requests at once: followers hit what leaders brought, on several workers."""
    fleet = Fleet(8)
    shared = prompt(0, 4_000)
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    for seed in range(1, 101):
        decision = fleet.router.decide(fleet.request(shared + prompt(seed, 200)))
        decision.sent()
        url = decision.worker.url
        assert decision.hit_tokens == (4_000 if url in seen else 0)
        seen.add(url)
        counts[url] += 1
    booked = sum(worker.inflight_tokens for worker in fleet.pool.workers)
    assert booked == 100 * 200 + 4_000 * len(seen)
    assert 3 <= len(seen) <= 8
    assert max(counts.values()) <= 30


def test_explain_decides_the_same_and_books_nothing() -> None:
    """Field by field as a decision would weigh it."""
    fleet = Fleet(2)
    ids = prompt(1, 1_000)
    fleet.store("w2", ids[:800])
    fleet.worker("w2").ledger(0).book(200, 10, prefill_s=None)
    explanation = fleet.router.explain(fleet.request(ids))
    assert explanation.prompt_tokens == 1_000
    assert explanation.chosen == fleet.router.explain(fleet.request(ids)).chosen
    cold, warm = explanation.workers
    assert (warm.url, warm.rank, warm.held_tokens) == ("w2", 0, 800)
    assert (warm.uncached_tokens, warm.inflight_tokens) == (200, 200)
    assert warm.inflight_requests == 1
    assert warm.cost_s == pytest.approx(0.03)
    assert warm.estimate_s == pytest.approx(0.02)
    assert cold.cost_s == pytest.approx(0.1)
    assert [worker.inflight_requests for worker in fleet.pool.workers] == [0, 1]
    decision = fleet.router.decide(fleet.request(ids))
    assert decision.worker.url == explanation.chosen.url
    assert explanation.why.startswith(decision.why)


def test_what_a_worker_computes_anew_is_not_looked_up() -> None:
    """A request that does not read the cache is booked whole, where least waits.

    Its end tells nothing of the cache: no event is awaited.
    """
    fleet = Fleet(2)
    ids = prompt(1, 1_000)
    fleet.store("w2", ids[:800])
    fleet.worker("w2").ledger(0).book(200, 10, prefill_s=None)
    request = msgspec.structs.replace(fleet.request(ids), reads_cache=False)
    decision = fleet.router.decide(request)
    assert (decision.worker.url, decision.hit_tokens) == ("w1", 0)
    assert fleet.worker("w1").inflight_tokens == 1_000
    decision.finished(Usage(prompt_tokens=1_000))
    fleet.clock += 60.0
    feed = fleet.worker("w1").knowledge[0].feed
    feed.tick()
    assert feed.state == "live"


def test_explain_says_what_was_not_rendered() -> None:
    """And that a single candidate was no choice."""
    fleet = Fleet(1)
    request = RouteRequest(model="qwen", prompt_tokens=50, not_rendered="media")
    assert fleet.router.explain(request).why == (
        "the only candidate: 0 of 50 prompt tokens held, 0 in flight "
        "(estimates, not rendered: media)"
    )


def test_the_time_of_each_matching_is_told() -> None:
    """For a metric; by the timer that was passed in."""
    fleet = Fleet(2)
    took: list[float] = []
    ticks = iter(range(10))
    router = Router(
        fleet.pool,
        KvCacheAware(random.Random(), Clock()),
        on_match=took.append,
        timer=lambda: float(next(ticks)),
    )
    router.explain(fleet.request(prompt(1, 100)))
    assert took == [1.0]


def test_no_worker_left_is_an_error_of_its_own() -> None:
    """With or without one tried before."""
    fleet = Fleet(1)
    with pytest.raises(NoCandidate, match="no other worker is left"):
        fleet.router.decide(fleet.request(prompt(1, 9), exclude=["w1"]))
    with pytest.raises(NoCandidate, match="no workers"):
        Fleet().router.explain(RouteRequest())


def test_a_removed_worker_gets_nothing_and_releases_what_it_had() -> None:
    """Its requests end in its own books."""
    fleet = Fleet(2)
    decision = fleet.router.decide(fleet.request(prompt(1, 400)))
    worker = fleet.pool.remove(decision.worker.url)
    assert worker is not None
    other = fleet.router.decide(fleet.request(prompt(2, 400)))
    assert other.worker is not worker
    decision.failed("reset")
    assert (worker.inflight_requests, worker.inflight_tokens) == (0, 0)
