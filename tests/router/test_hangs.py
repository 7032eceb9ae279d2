"""Workers that hang, where nothing is streamed; and those whose answers take long."""

import random

import pytest

from router import Decision, WorkerState
from router.load import Load
from tests.router.fleet import Fleet
from tests.router.traffic import Traffic


def test_one_prompt_is_lost_three_times_where_it_was_answered_before() -> None:
    """However well its worker knows it; then others get it."""
    traffic = Traffic(Fleet(2, events=False))
    (holder,) = traffic.in_turn(1)
    assert traffic.in_turn(1) == [holder]
    traffic.hung.add(holder)
    went = traffic.in_turn(*[1] * 12)
    assert went[:3] == [holder] * 3
    assert holder not in went[3:]
    worker = traffic.fleet.worker(holder)
    assert (worker.state, worker.reason) == ("suspect", "answers never came")


@pytest.mark.parametrize(("known", "most"), [(True, 3), (False, 4)])
def test_three_prompts_are_lost_of_many(*, known: bool, most: int) -> None:
    """One after the other; one more where nothing was answered before."""
    traffic = Traffic(Fleet(2, events=False))
    if known:
        traffic.in_turn(1, 2)
    traffic.hung.add("w1")
    traffic.in_turn(*range(3, 27))
    assert traffic.lost == most


def test_a_worker_that_hangs_gets_few_at_a_time() -> None:
    """What it owes is in its way: that is no less than what was sent to it."""
    traffic = Traffic(Fleet(2, events=False))
    traffic.in_turn(1, 2)
    traffic.hung.add("w1")
    for seed in range(3, 403):
        traffic.ask(seed)
        traffic.wait(0.15)
    assert traffic.lost + traffic.waiting <= 10


@pytest.mark.parametrize("takes_s", [0.05, 2.0])
def test_what_it_holds_draws_few_more(takes_s: float) -> None:
    """Requests that come faster than they are answered, for a prefix it holds."""
    traffic = Traffic(
        Fleet(2, events=False), takes_s=lambda decision: takes_s, patience_s=600
    )
    (holder,) = traffic.in_turn(1)
    traffic.hung.add(holder)
    went = []
    for _ in range(400):
        went.append(traffic.ask(1).worker.url)
        traffic.wait(0.1)
    # Three times the usual, and a second: what came until then is at the worker.
    assert went.count(holder) <= 3 + (3 * (takes_s + 1) + 1) / 0.1
    assert traffic.fleet.worker(holder).state is WorkerState.suspect


def test_it_is_tried_ever_more_rarely_and_returns_when_it_works() -> None:
    """By one request at a time, of which one that is lost will do."""
    traffic = Traffic(Fleet(2, events=False))
    traffic.in_turn(1, 2)
    traffic.hung.add("w1")
    for seed in range(3, 6003):
        traffic.ask(seed)
        traffic.wait(0.1)
    worker = traffic.fleet.worker("w1")
    assert worker.failures > 5
    assert traffic.lost + traffic.waiting <= 20
    traffic.hung.clear()
    traffic.wait(70)
    went = traffic.in_turn(*range(10_000, 10_020))
    assert worker.state is WorkerState.ready
    assert went.count("w1") >= 10


def test_a_request_that_got_nothing_does_not_come_back() -> None:
    """What is noted of its prompt does not draw the next try there, nor a third."""
    traffic = Traffic(Fleet(2, events=False))
    traffic.hung.add("w1")
    assert traffic.in_turn(*[1] * 5) == ["w1"] + ["w2"] * 4


@pytest.mark.parametrize("at_a_time", [1, 2, 8])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_long_answers_are_no_fault(at_a_time: int, spread: float) -> None:
    """A fleet in which each takes a minute, and each worker is at one to eight."""
    rng = random.Random(1)
    fleet = Fleet(2)
    traffic = Traffic(
        fleet, takes_s=lambda decision: 60 * rng.uniform(1 - spread, 1 + spread)
    )
    for seed in range(300):
        while traffic.waiting < 2 * at_a_time:
            traffic.ask(1000 + seed)
        traffic.wait(20)
        _all_well(fleet)


def test_long_answers_after_short_ones_are_no_fault() -> None:
    """A worker that gets a few of them, while others are asked for short ones only."""
    fleet = Fleet(2)
    traffic = Traffic(fleet, takes_s=lambda decision: 0.2)
    traffic.in_turn(*range(20))
    for seed in (100, 101):
        _ask_long(traffic, seed, 200.0)
    for seed in range(200):
        traffic.wait(1)
        traffic.ask(1000 + seed)
        _all_well(fleet)


def _ask_long(traffic: Traffic, seed: int, takes_s: float) -> Decision:
    usual, traffic._takes_s = traffic._takes_s, lambda decision: takes_s
    try:
        return traffic.ask(seed)
    finally:
        traffic._takes_s = usual


def test_a_mix_of_short_and_long_answers_is_no_fault() -> None:
    """One of ten takes a hundred times as long, at any moment, for hours."""
    rng = random.Random(2)
    fleet = Fleet(3)
    traffic = Traffic(
        fleet, takes_s=lambda decision: 60.0 if rng.random() < 0.1 else 0.6
    )
    for seed in range(4000):
        traffic.ask(seed)
        traffic.wait(rng.expovariate(1 / 2.0))
        _all_well(fleet)


def test_clients_that_all_leave_early_are_no_evidence() -> None:
    """A batch that is stopped, before its answers took longer than is usual."""
    fleet = Fleet(2)
    traffic = Traffic(fleet, takes_s=lambda decision: 60.0, patience_s=50.0)
    traffic.in_turn(*range(4))
    traffic.hung.update(("w1", "w2"))
    for seed in range(50):
        traffic.ask(100 + seed)
    traffic.wait(55)
    assert (traffic.lost, traffic.waiting) == (50, 0)
    _all_well(fleet)


def _all_well(fleet: Fleet) -> None:
    assert [fleet.pool.rank(worker) for worker in fleet.pool.workers] == [0] * len(
        fleet.pool.workers
    )
    assert not any(worker.failures for worker in fleet.pool.workers)


def test_long_answers_everywhere_after_short_ones_are_spread() -> None:
    """Each worker gets a few, and seems to hang: none is to get all that follow."""
    fleet = Fleet(4)
    traffic = Traffic(fleet, takes_s=lambda decision: 0.2)
    traffic.in_turn(*range(20))
    went = []
    for seed in range(100):
        went.append(_ask_long(traffic, 1000 + seed, 200.0).worker.url)
        traffic.wait(0.5)
    counts = [went.count(worker.url) for worker in fleet.pool.workers]
    assert max(counts) <= 1.5 * len(went) / len(counts)


@pytest.mark.parametrize("workers", [3, 8])
def test_one_that_gets_short_ones_too_does_not_get_all(workers: int) -> None:
    """Its short answers come, so it is in time while all the others seem to hang."""
    fleet = Fleet(workers)
    traffic = Traffic(fleet, takes_s=lambda decision: 0.2)
    traffic.in_turn(*range(20))
    went = []
    for turn in range(160):
        went.append(_ask_long(traffic, 1000 + turn, 200.0).worker.url)
        if turn % 4 == 0:
            traffic.ask(5000 + turn)
        traffic.wait(0.5)
    assert max(map(went.count, set(went))) <= 1.5 * len(went) / workers


def test_what_takes_no_longer_than_others_did_since_is_no_failure() -> None:
    """A worker is suspect for its answers; then as long a one comes from another."""
    fleet = Fleet(2)
    traffic = Traffic(fleet, takes_s=lambda decision: 0.2)
    traffic.in_turn(*range(20))
    first = _ask_long(traffic, 100, 200.0).worker
    while sum(one.worker is first for _, _, one, _ in traffic._open) < 3:
        _ask_long(traffic, 100, 200.0)
    _ask_long(traffic, 200, 30.0)
    for _ in range(40):
        traffic.wait(1)
        fleet.pool.rank(first)
    assert (first.state, first.failures) == (WorkerState.ready, 0)


@pytest.mark.parametrize("works", [True, False])
def test_an_engine_that_says_it_goes_on_does_not_hang(*, works: bool) -> None:
    """Its cache fills while its answers are silent; that of one that hangs does not."""
    fleet = Fleet(2)
    traffic = Traffic(fleet, takes_s=lambda decision: 0.2)
    traffic.in_turn(*range(20))
    worker = _ask_long(traffic, 100, 200.0).worker
    while sum(one.worker is worker for _, _, one, _ in traffic._open) < 4:
        _ask_long(traffic, 100, 200.0)
    for second in range(60):
        traffic.wait(1)
        usage = 0.1 + 0.01 * second * works
        load = Load(running=3, waiting=second % 2, kv_usage=usage)
        fleet.pool.reported(worker, 0, load, own=0, own_in_all=3, source="/metrics")
        fleet.pool.rank(worker)
    assert worker.state is (WorkerState.ready if works else WorkerState.suspect)
