"""Steps back in the numbers of a stream: restarts, or two publishers by turns."""

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.turns import ALONE, ENOUGH, TURNS, WAIT_S, Batch, Turns
from kvindex.blocks import pack_ids
from kvindex.events import BlockStored, EventBatch
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.standing import FeedState
from kvindex.wire.vllm import encode_batch

LOOK_S = 1.0
"""Time is let pass so often."""


class Life(NamedTuple):
    """Of a process that publishes: `away_s` before it, then a batch each `pause_s`."""

    first: int
    batches: int
    pause_s: float
    away_s: float


PAUSES = st.sampled_from([0.0, 0.001, 0.1, 0.3, 1.0, 3.0])
LIVES = st.builds(Life, st.just(0), st.integers(1, 40), PAUSES, st.floats(0, 5))
"""Each heard from its first batch on, and back as soon as may be."""
LATE_LIVES = st.builds(
    Life,
    st.integers(0, 12),
    st.integers(1, 40),
    PAUSES,
    st.floats(WAIT_S + LOOK_S, 9),
)
"""The first batches of each may be lost."""


def taken(
    turns: Turns, *numbers: int, now: float = 0.0, tag: bytes = b"a"
) -> list[int]:
    """The numbers that are handed on."""
    given = [batch for n in numbers for batch in turns.take(n, tag + b"%d" % n, now)]
    return [number for number, _ in given]


@given(st.lists(st.integers(0, 5), min_size=1))
def test_numbers_that_rise_pass(steps: list[int]) -> None:
    """At once, with gaps and repeated batches."""
    numbers = [sum(steps[: i + 1]) for i in range(len(steps))]
    assert taken(Turns(), *numbers) == numbers


def test_a_restart() -> None:
    """After some batches or some time, in order and from the first on."""
    turns = Turns()
    taken(turns, 100, 101)
    assert taken(turns, *range(ENOUGH - 1)) == []
    assert taken(turns, ENOUGH - 1, ENOUGH) == list(range(ENOUGH + 1))
    turns = Turns()
    taken(turns, 100, 101)
    assert taken(turns, 3, 4, now=5.0) == []
    assert list(turns.settle(5.0 + WAIT_S / 2)) == []
    assert [n for n, _ in turns.settle(5.0 + WAIT_S)] == [3, 4]
    assert taken(turns, 5) == [5]


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_two_by_turns(first: int, second: int) -> None:
    """However their numbers lie: shared, and nothing is handed on that goes back."""
    turns, passed = Turns(), list[int]()
    for step in range(20):
        passed += taken(turns, first + step, tag=b"a")
        passed += taken(turns, second + step, tag=b"b")
    assert passed == sorted(passed)
    assert turns.shared


def test_one_that_is_left() -> None:
    """After enough batches in a row the stream is one publisher's again."""
    turns = Turns()
    taken(turns, 100, 7, 101)
    assert turns.shared
    passed = taken(turns, *range(8, 8 + ALONE + 3))
    assert not turns.shared
    assert passed == list(range(8 + ALONE, 8 + ALONE + 3))


def payload(number: int) -> bytes:
    """A batch that stores one block."""
    ids = pack_ids(range(16 * number, 16 * number + 16))
    event = BlockStored(hashes=(number,), token_ids=ids, block_size=16)
    return encode_batch(EventBatch(timestamp=0.0, events=(event,), rank=0))


def published(lives: list[Life]) -> Iterator[tuple[float, Batch]]:
    """When each batch comes."""
    now, number = 0.0, 0
    for life in lives:
        now += life.away_s
        for step in range(life.batches):
            yield now, (life.first + step, payload(number))
            now, number = now + life.pause_s, number + 1


def play(turns: Turns, batches: list[tuple[float, Batch]]) -> Iterator[Batch]:
    """What is handed on of batches that come at their times, and when time passes."""
    look = 0.0
    for now, batch in batches:
        while look <= now:
            yield from turns.settle(look)
            look += LOOK_S
        yield from turns.take(*batch, now)
        assert not turns.shared
    yield from turns.settle(look + WAIT_S)


@given(st.lists(LIVES, min_size=1, max_size=5))
def test_one_that_restarts(lives: list[Life]) -> None:
    """Whenever, and at whatever rate: nothing is lost, only the last cache counts."""
    batches = list(published(lives))
    handed = list(play(Turns(), batches))
    assert handed == [batch for _, batch in batches]
    feed = Feed(
        model="m", indexes=Indexes(limit_bytes=1 << 26), key="w", clock=lambda: 0.0
    )
    for batch in handed:
        feed.receive(*batch)
    assert feed.owner
    assert feed.owner.blocks == lives[-1].batches
    assert feed.counters.restarts == len(lives) - 1
    assert (feed.state, feed.complete) == (FeedState.LIVE, True)


@given(st.lists(LATE_LIVES, min_size=1, max_size=TURNS + 1))
def test_one_that_restarts_and_is_heard_late(lives: list[Life]) -> None:
    """Its first number may be any, also the one where an earlier life ended."""
    batches = list(published(lives))
    assert list(play(Turns(), batches)) == [batch for _, batch in batches]


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(st.integers(1, ENOUGH // 2 - 1), min_size=8, max_size=20),
)
def test_two_in_bursts(first: int, second: int, bursts: list[int]) -> None:
    """However many each sends between the other's: shared, nothing is emptied."""
    turns, places, passed = Turns(), [first, second], list[int]()
    for turn, burst in enumerate(bursts):
        for _ in range(burst):
            mine = turn % 2
            passed += taken(turns, places[mine], tag=b"ab"[mine : mine + 1])
            places[mine] += 1
    assert turns.shared
    assert passed == sorted(set(passed))


@given(st.integers(0, 12), st.integers(0, 12), st.floats(WAIT_S, 60))
def test_two_that_are_slow(first: int, second: int, pause_s: float) -> None:
    """Each is alone for so long that it may have restarted; some turns tell, for good.

    Until then a cache may be emptied: it is not known which is true.
    """
    turns, now = Turns(), 0.0
    for step in range(2 * TURNS):
        for tag, start in ((b"a", first), (b"b", second)):
            list(turns.settle(now))
            taken(turns, start + step, now=now, tag=tag)
            now += pause_s
    assert turns.shared
