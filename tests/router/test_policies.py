"""Each policy, over candidates made by hand."""

import random
from collections import Counter

import pytest

from router import POLICIES, RouteRequest
from tests.router.choices import candidate, choose, policy
from tests.router.fleet import Clock, Fleet, prompt


def test_equal_loads_go_by_decode_work_then_turn() -> None:
    """What the design lists after the prefill, in its order."""
    for name in ("kv_cache_aware", "least_loaded"):
        assert choose(name, candidate(decode=9), candidate(decode=8)) == 1
        assert choose(name, candidate(last_turn=7), candidate(last_turn=5)) == 1


def test_least_loaded_ignores_the_cache() -> None:
    """Tokens in flight only."""
    warm = candidate(uncached=10, inflight=100)
    assert choose("least_loaded", warm, candidate(inflight=99)) == 1


def test_least_loaded_counts_time() -> None:
    """Twice the tokens in flight at four times the speed are half of the wait."""
    slow, fast = candidate(inflight=100), candidate(inflight=200, rate=80_000)
    assert choose("least_loaded", slow, fast) == 1


def test_round_robin_takes_the_one_chosen_longest_ago() -> None:
    """Whatever is cached or in flight."""
    recent, long_ago = candidate(last_turn=9), candidate(last_turn=2, inflight=10**6)
    assert choose("round_robin", recent, long_ago) == 1


def test_random_gives_all_the_same_chance() -> None:
    """Seeded, so the counts are what they are."""
    drawing = policy("random", seed=3)
    candidates = [candidate(), candidate(inflight=10**6), candidate(uncached=0)]
    counts = Counter(drawing.choose(RouteRequest(), candidates) for _ in range(3_000))
    assert all(900 < counts[index] < 1_100 for index in range(3))


def test_power_of_two_never_takes_the_most_loaded() -> None:
    """Of any two of three it is the worse; the least loaded gets two of three."""
    drawing = policy("power_of_two")
    candidates = [candidate(inflight=n) for n in (20, 10, 30)]
    counts = Counter(drawing.choose(RouteRequest(), candidates) for _ in range(3_000))
    assert counts[2] == 0
    assert counts[1] == pytest.approx(2_000, rel=0.1)


def test_power_of_two_of_one() -> None:
    """There is nothing to draw."""
    assert choose("power_of_two", candidate()) == 0


def test_a_session_has_one_home_wherever_it_is_listed() -> None:
    """The order of the workers does not matter, nor which gateway asks."""
    fleet = [candidate(f"w{n}") for n in range(8)]
    for name in ("alice", "bob", "ünï\ud800"):
        home = fleet[choose("session", *fleet, session=name)]
        assert fleet[::-1][choose("session", *fleet[::-1], session=name)] is home


def test_sessions_spread() -> None:
    """1,000 sessions over 8 workers: each home to about 125."""
    fleet = [candidate(f"w{n}") for n in range(8)]
    counts = Counter(choose("session", *fleet, session=f"s{n}") for n in range(1_000))
    assert all(85 <= counts[n] <= 165 for n in range(8))


def test_only_sessions_of_a_worker_that_left_move() -> None:
    """The others keep their homes."""
    fleet = [candidate(f"w{n}") for n in range(8)]
    moved = 0
    for n in range(400):
        before = fleet[choose("session", *fleet, session=f"s{n}")]
        left = fleet[:3] + fleet[4:]
        after = left[choose("session", *left, session=f"s{n}")]
        moved += before is not after
        assert before is after or before is fleet[3]
    assert 25 <= moved <= 80


def test_a_saturated_home_releases_its_session() -> None:
    """Once the prompt, with the delay it causes, would cost less where it is idle."""
    fleet = [candidate(f"w{n}") for n in range(2)]
    home = choose("session", *fleet, session="s")
    for inflight, stays in ((2_000, True), (2_001, False)):
        fleet[home] = candidate(f"w{home}", inflight=inflight)
        assert (choose("session", *fleet, session="s") == home) is stays


def test_without_a_session_the_least_loaded() -> None:
    """There is no home to prefer."""
    assert choose("session", candidate(inflight=5), candidate(inflight=4)) == 1


def test_every_policy_says_why() -> None:
    """The reason is a few words for `explain`."""
    rng, clock = random.Random(), Clock()
    assert {name: make(rng, clock).reason for name, make in POLICIES.items()} == {
        "kv_cache_aware": "least prefill cost",
        "least_loaded": "fewest tokens in flight",
        "round_robin": "its turn",
        "random": "drawn at random",
        "power_of_two": "the less loaded of two",
        "session": "its session's home",
    }


@pytest.mark.parametrize("name", ["kv_cache_aware", "least_loaded"])
def test_of_equal_queues_the_one_that_is_further_on(name: str) -> None:
    """What is in flight is the same, but a part of it should be done."""
    fleet = Fleet(2, policy=name)
    first = fleet.router.decide(fleet.request(prompt(1, 4_000))).worker.url
    fleet.clock += 0.1
    assert fleet.router.decide(fleet.request(prompt(2, 4_000))).worker.url != first
    # Later turns, and the least that was sent lately, would both be the other one.
    fleet.worker(first).ledger(0).last_turn = 9
    fleet.worker(first).ledger(0).book(0, 500, prefill_s=None).release()
    fleet.clock += 0.05
    assert fleet.router.decide(fleet.request(prompt(3, 400))).worker.url == first


@pytest.mark.parametrize("name", list(POLICIES))
def test_500_unique_prompts_reach_every_equal_worker(name: str) -> None:
    """No worker is left out where all are equal and idle."""
    choosing = policy(name)
    turns, counts = [0] * 5, Counter[int]()
    for turn in range(1, 501):
        fleet = [candidate(f"w{n}", last_turn=turns[n]) for n in range(5)]
        request = RouteRequest(session=f"s{turn}")
        chosen = choosing.book(request, fleet)
        turns[chosen] = turn
        counts[chosen] += 1
    assert all(75 <= counts[n] <= 125 for n in range(5))
