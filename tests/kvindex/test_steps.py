"""No table that grows with what workers hold is grown, or given back, at once."""

import gc
from collections.abc import Iterator
from itertools import pairwise

from kvindex.blocks import pack_ids
from kvindex.events import BlockStored
from kvindex.history import History
from kvindex.sharded import UNSPREAD
from tests.kvindex.engine import CLEARED, Clock, Stream, stored

BLOCKS = 20_000
AT_ONCE = 500
MANY = 2 * UNSPREAD
"""Entries of a table that takes less than two milliseconds to grow."""


def largest(holder: object) -> int:
    """Entries of the largest dictionary that an object leads to, modules left out."""
    seen: set[int] = set()
    todo, most = [holder], 0
    while todo:
        thing = todo.pop()
        if id(thing) in seen or type(thing).__name__ in ("module", "type", "function"):
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            most = max(most, len(thing))
        todo += gc.get_referents(thing)
    return most


def events(size: int, **fields: str) -> Iterator[BlockStored]:
    """So many blocks, in runs."""
    for first in range(0, BLOCKS, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        yield BlockStored(
            hashes=tuple(numbers),
            token_ids=pack_ids(n for number in numbers for n in [number] * size),
            block_size=size,
            medium="GPU",
            **fields,  # type: ignore[arg-type]
        )


def test_names_salts_and_copies() -> None:
    """Of blocks of a salt, each of which is stored twice."""
    stream = Stream(block_size=16)
    for _ in range(2):
        for event in events(16, salt="s"):
            stream.feed._intake.holder.stored(  # type: ignore[union-attr]
                event, complete=True
            )
    assert stream.owner.blocks == BLOCKS
    assert largest(stream.feed) < MANY
    stream.feed.restarted("process start time changed")
    assert largest(stream.indexes) < MANY  # what is to be freed


def test_large_cleared_maps_are_freed_in_slices() -> None:
    """By sweeps, each of which says whether more is left; ticks leave that to them."""
    stream = Stream()
    for _ in range(3):
        stream.send(stored(*range(6_000)), CLEARED)
    tables = stream.index.waste._tables
    left, more = [sum(map(len, tables))], True
    assert not stream.feed.tick()
    while more:
        more = stream.indexes.sweep(1_000)
        left.append(sum(map(len, tables)))
    assert (left[0], left[-1]) == (18_000, 0)
    assert max(before - after for before, after in pairwise(left)) == 1_000


def test_small_pages() -> None:
    """The pages, the blocks they are of, and the names."""
    stream = Stream(block_size=1)
    for event in events(1):
        stream.send(event)
    assert stream.owner.blocks > BLOCKS // 20
    assert largest(stream.feed) < MANY


def test_histories() -> None:
    """Of long requests, and of as many short ones."""
    past = History(capacity_blocks=1 << 20, clock=Clock())
    past.sent(range(BLOCKS))
    for number in range(BLOCKS, 2 * BLOCKS):
        past.sent([number])
    assert len(past) == 2 * BLOCKS
    assert largest(past) < MANY


def test_much_that_is_gone_is_forgotten_in_slices() -> None:
    """It counts no more at once; the tables lose it little by little."""
    past = History(capacity_blocks=1 << 20, clock=Clock())
    run = list(range(BLOCKS))
    for gone in (True, False):
        past.sent(run)
        if gone:
            past.gone(run[7])
        else:
            past.withdraw(run)
        assert len(past) > BLOCKS - 2_000
        assert past.held(run, live=False) <= 7
        steps = 0
        while len(past) > 7:
            past.gone(-1)
            steps += 1
        assert steps > 1_000
        past.gone(0)


def test_what_waits_to_be_forgotten_is_gone() -> None:
    """Whatever is asked of it; what is sent again is held again."""
    clock = Clock()
    past = History(capacity_blocks=1 << 20, clock=clock)
    run = list(range(BLOCKS))
    past.sent(run)
    past.gone(run[100])
    past.gone(run[BLOCKS // 2])
    past.delivered(run, 100, BLOCKS)
    assert past.held(run, live=True) == past.held(run, live=False) == 100
    past.spoken_for(run, 0.0)
    assert (past.held(run, live=True), past.held(run, live=False)) == (0, 100)
    past.withdraw(run)
    assert past.held(run, live=False) == 0
    past.sent(run)
    for _ in range(BLOCKS):
        past.gone(-1)
    assert past.held(run, live=False) == len(past) == BLOCKS


def test_a_lower_bound_is_reached_in_slices() -> None:
    """The worker says that its cache is small, after many requests."""
    past = History(capacity_blocks=1 << 20, clock=Clock())
    past.sent(range(BLOCKS))
    past.capacity_blocks = 10
    past.sent([-1])
    assert len(past) > BLOCKS - 2_000
    for number in range(2, 100):
        past.sent([-number])
    assert len(past) == 10


def test_contradictions_are_bounded() -> None:
    """The first blocks of what was not found stand for all that is behind them."""
    past = History(capacity_blocks=1 << 20, clock=Clock())
    run = list(range(BLOCKS))
    past.sent(run)
    for _ in range(2):
        past.delivered(run, 100, BLOCKS)
    assert past.held(run, live=False) == 100
    assert len(past._strikes) < 1_000
    for start in range(0, BLOCKS, 1_000):
        past.delivered(run, start, BLOCKS)
    assert len(past._strikes) < 10_000
