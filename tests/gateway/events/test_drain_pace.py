"""When events are fetched, and what holes in their ids mean."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.events import drain
from gateway.events.drain import Holes, Pace, cause_of_hole
from router.rate import PrefillRate
from router.worker import Worker, WorkerSpec


@pytest.mark.parametrize(
    ("events", "largest", "other", "over"),
    [
        (3, 200, True, False),  # more fitted in before
        (1024, 1024, False, True),
        (4, 4, True, True),
        (1, 0, True, True),
    ],
)
def test_what_a_hole_means(events: int, largest: int, other: bool, over: bool) -> None:
    """A buffer that runs over is full, so no fetch ever brings more."""
    text = cause_of_hole(events, largest)
    assert ("another consumer" in text) is other
    assert ("event_buffer_max_size" in text) is over


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50), st.booleans())))
def test_holes_are_said_once_a_minute(steps: list[tuple[int, int, bool]]) -> None:
    """However often there are any."""
    now, said = [0.0], list[float]()
    holes = Holes("http://w", lambda: now[0], lambda line: said.append(now[0]))
    for seconds, events, found in steps:
        now[0] += seconds
        holes.note(events=events, found=found)
    assert all(b - a >= 60 for a, b in itertools.pairwise(said))
    assert bool(said) is any(found for *_, found in steps)


class Ticking:
    """A clock that goes on by a hundredth of a second with each look at it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


async def test_often_while_busy_and_seldom_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each interval while requests run and a while after, else once a second."""
    monkeypatch.setattr(drain, "BUSY_S", 0.0)
    clock = Ticking()
    worker = Worker(WorkerSpec(url="http://w:1"), clock=clock, rate=PrefillRate(1000.0))
    pace = Pace(worker, clock)

    async def took(*, heard: bool) -> float:
        begun = clock.now
        await pace.wait(heard=heard)
        return clock.now - begun

    assert await took(heard=False) >= drain.IDLE_S
    booking = worker.ledger(0).book(10, 10, prefill_s=None)
    assert await took(heard=False) < 0.1
    booking.release()
    worker.ledger(0).last_turn += 1  # one came and went between two looks
    assert await took(heard=False) < 0.1
    assert await took(heard=True) < 0.1
    clock.now += drain.LINGER_S
    assert await took(heard=False) >= drain.IDLE_S
