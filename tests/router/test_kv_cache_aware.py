"""The default policy, over candidates made by hand."""

import pytest
from msgspec import structs

from router import Candidate, Policy, RouteRequest
from tests.router.choices import candidate, choose, policy
from tests.router.fleet import Clock


def test_cost_counts_the_own_prefill_twice() -> None:
    """(in flight + 2 x own uncached) / rate; the estimate counts it once."""
    one = candidate(uncached=1_000, inflight=500)
    assert (one.wait_s, one.prefill_s, one.delay_s) == (0.025, 0.05, 0.05)
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


def waiting(queue: int = 1_000, room: int | None = None) -> list[Candidate]:
    """A worker that holds 900 of 1,000 tokens and is behind, and one that is idle."""
    return [
        candidate("warm", uncached=100, inflight=queue),
        candidate("idle", room=room),
    ]


def ask(asked: Policy, candidates: list[Candidate]) -> int:
    """Choose, for a request that is sent there."""
    return asked.book(RouteRequest(), candidates)


def test_a_prefix_that_many_wait_for_gets_one_more_copy() -> None:
    """Each waits 50 ms; a copy takes 45 ms: due beyond twice that, then beyond once."""
    clock = Clock()
    asked = policy("kv_cache_aware", clock=clock)
    chosen = []
    for _ in range(5):
        chosen.append(ask(asked, waiting()))
        clock += 1.0
    assert chosen == [0, 1, 1, 1, 1]


def test_what_is_done_by_now_was_waited_for_all_the_same() -> None:
    """Else the second copy of a new prefix comes when its first requests are over."""
    warm, idle = waiting()
    busy = [structs.replace(warm, done_tokens=900), idle]
    assert busy[0].wait_s < busy[0].booked_s == pytest.approx(warm.wait_s)
    clock = Clock()
    asked, chosen = policy("kv_cache_aware", clock=clock), []
    for _ in range(3):
        chosen.append(ask(asked, busy))
        clock += 1.0
    assert chosen == [0, 1, 1]


@pytest.mark.parametrize(("room", "copied"), [(1_000, True), (999, False)])
def test_waiting_makes_no_copy_that_pushes_out_another_prefix(
    room: int, copied: bool
) -> None:
    """1,000 tokens would be computed at the idle worker: there must be room for them.

    In caches of 24,000 tokens that did not hold all, such copies cost 4 points of the
    hit rate, and a third of the time to the first token.
    """
    clock = Clock()
    asked = policy("kv_cache_aware", clock=clock)
    chosen = []
    for _ in range(50):
        chosen.append(ask(asked, waiting(room=room)))
        clock += 1.0
    assert (1 in chosen) is copied


def test_a_burst_of_siblings_makes_no_copy() -> None:
    """All at once, they count as one: no lasting demand."""
    asked = policy("kv_cache_aware")
    assert [ask(asked, waiting()) for _ in range(50)] == [0] * 50


def test_a_copy_is_used_once_it_is_there() -> None:
    """Then it is the load that decides."""
    asked = policy("kv_cache_aware")
    both = [candidate(uncached=100, inflight=50), candidate(uncached=100)]
    assert ask(asked, both) == 1


def test_explaining_changes_nothing() -> None:
    """Only what is booked counts."""
    clock = Clock()
    asked = policy("kv_cache_aware", clock=clock)
    for _ in range(50):
        clock += 1.0
        assert asked.choose(RouteRequest(), waiting()) == 0
    assert ask(asked, waiting()) == 0


def test_a_session_nobody_knows_goes_home() -> None:
    """Unless its home waits for longer than another would take in all."""
    fleet = [candidate(f"w{n}") for n in range(4)]
    home = choose("session", *fleet, session="s")
    for inflight, stays in ((1_000, True), (1_001, False)):
        fleet[home] = candidate(f"w{home}", inflight=inflight)
        chosen = choose("kv_cache_aware", *fleet, session="s")
        assert (chosen == home) is stays


def test_what_is_known_of_the_prompt_goes_before_its_session() -> None:
    """Held tokens tell more than a name."""
    fleet = [candidate(f"w{n}") for n in range(4)]
    home = choose("session", *fleet, session="s")
    other = (home + 1) % 4
    fleet[other] = candidate(f"w{other}", uncached=900)
    assert choose("kv_cache_aware", *fleet, session="s") == other
