"""What batch numbers say: order, restarts, duplicates, two publishers in one place."""

import logging
from itertools import chain as joined

import pytest

from kvindex.sequence import AFTER_ALL, ALONE, Arrival, LiveOrder, Progress, Step
from tests.kvindex.engine import Stream, payload, stored

ON, RESTART, LATE, SHARED, DUPLICATE = (
    Arrival.ON,
    Arrival.RESTART,
    Arrival.LATE,
    Arrival.SHARED,
    Arrival.DUPLICATE,
)


def arrivals(*numbers: int) -> list[Arrival]:
    """What each number is, each batch with bytes of its own."""
    order = LiveOrder()
    return [order.arrive(number, i) for i, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 1, 2, 7, 8), (ON,) * 5),
        ((5, 6, 0, 1), (ON, ON, RESTART, ON)),
        ((5, 5, 6), (ON, RESTART, ON)),
        ((5, 6, 3, 4, 5, 6, 7), (ON, ON, RESTART, ON, ON, ON, ON)),
        ((5, 7, 6, 8, 9), (ON, ON, LATE, ON, ON)),
        ((0, 1, 500, 2, 501, 3, 502, 4), (ON, ON, ON, LATE, ON, LATE, ON, SHARED)),
        ((500, 3, 501, 4, 502, 5), (ON, RESTART, ON, LATE, ON, SHARED)),
    ],
)
def test_order(numbers: tuple[int, ...], expected: tuple[Arrival, ...]) -> None:
    """Jumps, steps back, one late batch, two places by turns."""
    assert tuple(arrivals(*numbers)) == expected


@pytest.mark.parametrize("apart", [-3, -2, -1, 1, 2, 3])
def test_two_places_side_by_side(apart: int) -> None:
    """However near: batches in no order that never ends are two publishers."""
    both = list(joined.from_iterable((10 + i, 10 + i + apart) for i in range(20)))
    assert SHARED in arrivals(*both)
    swaps = joined.from_iterable((i + 1, i) for i in range(10, 90, 2))
    assert SHARED not in arrivals(*swaps)


def test_the_same_batch_again_is_a_duplicate() -> None:
    """The same number and bytes."""
    order = LiveOrder()
    assert [order.arrive(3, 1), order.arrive(3, 1)] == [ON, DUPLICATE]


def test_late_batches_that_go_on_are_a_restart_after_all() -> None:
    """Its first number was just where an old jump began."""
    numbers = (5, 500, *range(6, 6 + AFTER_ALL + 1))
    found = arrivals(*numbers)
    assert set(found[2 : 1 + AFTER_ALL]) == {LATE}
    assert found[1 + AFTER_ALL :] == [RESTART, ON]


def test_a_shared_stream_that_is_left_by_one() -> None:
    """Whoever goes on alone begins anew."""
    both = joined.from_iterable((500 + i, i) for i in range(1, 20))
    alone = range(520, 520 + 2 * ALONE)
    found = arrivals(*both, *alone)
    assert found[30] is SHARED
    assert found.count(RESTART) == 2
    assert found[-1] is ON


def test_progress() -> None:
    """Against what was applied, by a replay or live."""
    progress = Progress()
    assert progress.step(7, 1) is Step.FIRST
    progress.applied(7, 1)
    assert [progress.step(8, 1), progress.step(9, 1)] == [Step.NEXT, Step.GAP]
    assert progress.missed(10) == 2
    progress.applied(8, 2, ahead=True)
    progress.applied(9, 3, ahead=True)
    assert progress.step(8, 2) is Step.KNOWN
    assert [progress.step(9, 3), progress.step(9, 4)] == [Step.KNOWN, Step.OTHER]


def test_two_publishers_on_one_topic(caplog: pytest.LogCaptureFixture) -> None:
    """Said once; degraded, never cleared; nothing of either is believed in full."""
    stream = Stream(block_size=16)
    for block in range(5):
        stream.send(stored(block))
    with caplog.at_level(logging.WARNING):
        for turn in range(30):
            stream.feed.receive(900 + turn, payload(stored(1000 + turn)))
            stream.feed.receive(5 + turn, payload(stored(2000 + turn)))
    feed = stream.feed
    assert (feed.state, feed.counters.restarts) == ("degraded", 0)
    assert feed.reason == "two publishers share this stream"
    assert sum("two publishers" in line for line in caplog.messages) == 1
    assert stream.held(0) == 1
    assert stream.owner.suspect_blocks == stream.owner.blocks
    for _ in range(3):
        stream.clock.now += feed.settings.suspect_ttl_s
        feed.tick()
    assert (feed.state, stream.owner.blocks) == ("degraded", 0)
    for number in range(930, 930 + 2 * ALONE):
        stream.feed.receive(number, payload(stored(number)))
    assert feed.state == "live"
    assert not feed.complete


def test_one_batch_out_of_order() -> None:
    """It is not applied: what it stored may be gone by the batch that was first."""
    stream = Stream(block_size=16)
    stream.send(stored(1))
    stream.feed.receive(2, payload(stored(3)))
    stream.feed.receive(1, payload(stored(2)))
    stream.feed.receive(3, payload(stored(4)))
    assert (stream.feed.state, stream.feed.counters.out_of_order) == ("degraded", 1)
    assert (stream.held(1), stream.held(2), stream.held(4)) == (1, 0, 1)
    assert stream.feed.counters.restarts == 0


def test_a_step_back_on_a_new_connection() -> None:
    """To just where a jump began, too: another process, at once."""
    stream = Stream(block_size=16)
    stream.feed.receive(0, payload(stored(1)))
    stream.feed.receive(50, payload(stored(2)))
    stream.feed.disconnected("connection lost")
    stream.feed.receive(1, payload(stored(3)))
    assert stream.feed.counters.restarts == 1
    assert (stream.held(1), stream.held(2), stream.held(3)) == (0, 0, 1)
