"""The memory bound holds after each event, whatever events there are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kvindex.counters import Counters
from kvindex.events import (
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    EngineHash,
    ExtraKeys,
)
from kvindex.holder import Holder
from kvindex.index import Indexes
from kvindex.owner import BLOCK_BYTES, HOLDING_BYTES
from kvindex.shelf import shelf_for
from tests.kvindex.engine import MODEL, Stream, removed, stored

Event = BlockStored | BlockRemoved | BlockUpdated | None
"""None: all are cleared."""

NUMBERS = st.integers(1, 40)
SALTS = st.sampled_from([None, None, "a", "b"])
MEDIA = st.sampled_from(["GPU", "CPU", None])


def _name(number: int, size: int) -> EngineHash:
    return number if size == 8 else number.to_bytes(size, "big")


@st.composite
def _stored(draw: st.DrawFn, size: int) -> BlockStored:
    """Blocks of old and new content, under old and new names of any length."""
    first, length = draw(NUMBERS), draw(st.integers(1, 40))
    blocks = range(first, first + length)
    renamed, width = draw(st.integers(0, 3)) * 1_000, draw(st.sampled_from([8, 32, 64]))
    below = draw(st.one_of(st.none(), NUMBERS))
    keys: tuple[ExtraKeys, ...] = draw(
        st.sampled_from([(), ([["image", 0]],), ([["x" * 900, 1]],)])
    )
    event = stored(
        *blocks,
        names=tuple(_name(block + renamed, width) for block in blocks),
        parent=None if below is None else _name(below + renamed, width),
        size=size,
        medium=draw(MEDIA),
        extra_keys=keys or None,
    )
    return structs.replace(event, salt=draw(SALTS), salt_in_each=draw(st.booleans()))


def _events(size: int) -> st.SearchStrategy[Event]:
    named = st.builds(_name, NUMBERS, st.sampled_from([8, 64]))
    return st.one_of(
        _stored(size),
        _stored(size),
        st.builds(removed, named, medium=MEDIA),
        st.builds(BlockUpdated, hash=named, medium=MEDIA, medium_before=MEDIA),
        st.none(),
    )


def _apply(holder: Holder, event: Event) -> None:
    if event is None:
        holder.clear()
    elif isinstance(event, BlockStored):
        holder.stored(event)
        while holder.adoption.waits:
            holder.adoption.work(3)
    elif isinstance(event, BlockRemoved):
        holder.removed(event)
    else:
        holder.moved(event)


@settings(max_examples=150)
@given(st.data(), st.sampled_from([1, 4, 16, 64]), st.integers(1_000, 60_000))
def test_the_bound_is_never_passed(data: st.DataObject, size: int, limit: int) -> None:
    """Names, copies, pages, orphans, doubts: all of it is within."""
    indexes = Indexes(limit_bytes=limit)
    holders = [
        Holder(
            model=MODEL,
            page_size=size,
            shelf=shelf_for(indexes, MODEL, key, size),
            counters=Counters(),
            orphan_blocks=30,
        )
        for key in "ab"
    ]
    for event in data.draw(st.lists(_events(size), max_size=25)):
        holder = data.draw(st.sampled_from(holders))
        if data.draw(st.integers(0, 9)) == 0:
            holder.suspect()
            holder.miss()
        _apply(holder, event)
        for each in holders:
            each._charges.account()  # what a later event would find
        assert indexes.memory.used_bytes <= limit
    for holder in holders:
        holder.retire()
    while indexes.sweep(1000):
        pass
    assert indexes.memory.used_bytes == 0


def test_longer_names_of_many_blocks() -> None:
    """What they take is charged before there is room for the blocks."""
    stream = Stream(limit_bytes=100_000)
    for number in range(440):
        stream.send(stored(1, names=(_name(1_000 + number, 8),)))
    for first in range(100, 5_000, 40):
        blocks = range(first, first + 40)
        stream.send(stored(*blocks, names=tuple(_name(n, 64) for n in blocks)))
        assert stream.indexes.memory.used_bytes <= 100_000
    assert stream.feed.counters.refused > 0


def test_one_event_of_single_tokens() -> None:
    """Pages that make no block are paid for before they come, not after."""
    stream = Stream(limit_bytes=50_000)
    names = iter(range(1, 1_000_000))
    for block in range(40):
        run = tuple(next(names) for _ in range(15))
        stream.send(
            stored(*range(1_000 * block, 1_000 * block + 15), names=run, size=1)
        )
        assert stream.indexes.memory.used_bytes <= 50_000
    assert stream.feed.counters.refused > 0


def test_copies_without_room_are_refused() -> None:
    """The block is held all the same."""
    stream = Stream(limit_bytes=500, block_size=16)
    stream.send(stored(1, 2), stored(1, 2, 3))
    assert (stream.held(1, 2), stream.feed.counters.refused) == (2, 3)
    assert stream.indexes.memory.used_bytes == 2 * (BLOCK_BYTES + HOLDING_BYTES)


@pytest.mark.parametrize("size", [8, 16])
def test_the_first_salted_block(size: int) -> None:
    """What its salt takes is charged before there is room for it."""
    for limit in range(6_000, 7_000, 10):
        stream = Stream(limit_bytes=limit, block_size=size)
        for number in range(30):
            stream.send(stored(number, size=size))
        holder = stream.feed._intake.holder
        assert holder is not None
        stream.send(removed(1))
        for number in range(50, 60):
            holder.stored(structs.replace(stored(number, size=size), salt="a"))
            assert stream.indexes.memory.used_bytes <= limit
