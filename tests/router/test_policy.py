"""Policies, over candidates made by hand."""

import random
from collections import Counter

import pytest

from router import POLICIES, Candidate, Worker, WorkerSpec
from router.rate import PrefillRate
from tests.router.fleet import Clock


def candidate(
    url: str = "w",
    *,
    uncached: int = 1_000,
    inflight: int = 0,
    decode: int = 0,
    rate: float = 20_000,
    last_turn: int = 0,
) -> Candidate:
    """A candidate for a prompt of 1,000 tokens."""
    spec = WorkerSpec(url=url)
    worker = Worker(spec, clock=Clock(), rate=PrefillRate(rate))
    return Candidate(
        worker=worker,
        rank=0,
        rendering=None,
        prompt_tokens=1_000,
        held_tokens=1_000 - uncached,
        history_tokens=0,
        hit_tokens=1_000 - uncached,
        uncached_tokens=uncached,
        inflight_tokens=inflight,
        inflight_requests=0,
        decode_tokens=decode,
        tokens_per_s=rate,
        last_turn=last_turn,
    )


def choose(name: str, *candidates: Candidate) -> int:
    """The index a policy chooses."""
    return POLICIES[name](random.Random(1)).choose(candidates)


def test_cost_counts_the_own_prefill_twice() -> None:
    """(in flight + 2 x own uncached) / rate; the estimate counts it once."""
    one = candidate(uncached=1_000, inflight=500)
    assert one.cost_s == pytest.approx(0.125)
    assert one.estimate_s == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("inflight", "chosen"), [(1_799, 0), (1_801, 1)], ids=["affinity", "load"]
)
def test_a_warm_worker_wins_until_its_queue_costs_more(
    inflight: int, chosen: int
) -> None:
    """900 held tokens are worth 1,800 tokens in flight."""
    warm, cold = candidate(uncached=100, inflight=inflight), candidate()
    assert choose("kv_cache_aware", warm, cold) == chosen


def test_a_faster_worker_may_have_more_in_flight() -> None:
    """Cost is time, not tokens."""
    slow, fast = candidate(rate=10_000), candidate(rate=40_000, inflight=5_000)
    assert choose("kv_cache_aware", slow, fast) == 1
    assert choose("least_loaded", slow, fast) == 0


def test_equal_costs_go_by_decode_work_then_turn() -> None:
    """What the design lists after the prefill, in its order."""
    for name in ("kv_cache_aware", "least_loaded"):
        assert choose(name, candidate(decode=9), candidate(decode=8)) == 1
        assert choose(name, candidate(last_turn=7), candidate(last_turn=5)) == 1


def test_least_loaded_ignores_the_cache() -> None:
    """Tokens in flight only."""
    warm = candidate(uncached=10, inflight=100)
    assert choose("least_loaded", warm, candidate(inflight=99)) == 1


def test_round_robin_takes_the_one_chosen_longest_ago() -> None:
    """Whatever is cached or in flight."""
    recent, long_ago = candidate(last_turn=9), candidate(last_turn=2, inflight=10**6)
    assert choose("round_robin", recent, long_ago) == 1


def test_random_gives_all_the_same_chance() -> None:
    """Seeded, so the counts are what they are."""
    policy = POLICIES["random"](random.Random(3))
    candidates = [candidate(), candidate(inflight=10**6), candidate(uncached=0)]
    counts = Counter(policy.choose(candidates) for _ in range(3_000))
    assert all(900 < counts[index] < 1_100 for index in range(3))


def test_every_policy_says_why() -> None:
    """The reason is a few words for `explain`."""
    assert {name: make(random.Random()).reason for name, make in POLICIES.items()} == {
        "kv_cache_aware": "least prefill cost",
        "least_loaded": "fewest tokens in flight",
        "round_robin": "its turn",
        "random": "drawn at random",
    }
