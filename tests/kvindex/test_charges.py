"""What names take of the memory bound, by what they are seen to take."""

import itertools
import tracemalloc

import pytest

from kvindex.blocks import chain
from kvindex.events import EngineHash, ExtraKeys
from tests.kvindex.engine import CLEARED, ROOT, Stream, ids_of, removed, stored

NAMES = 20_000
AT_ONCE = 500


def name(number: int, size: int) -> EngineHash:
    """A hash of so many bytes; 8 are told as a number."""
    number = (1 << 62) + number
    return number if size == 8 else number.to_bytes(size, "big")


@pytest.mark.parametrize("size", [8, 32, 64])
@pytest.mark.parametrize("new", [True, False])
def test_names_take_no_more_than_is_charged(size: int, new: bool) -> None:
    """Of ever new blocks, and of the same ones: nor is far too much charged."""
    stream = Stream(limit_bytes=1 << 30)
    tracemalloc.start()
    for first in range(0, NAMES, AT_ONCE):
        blocks = range(first, first + AT_ONCE) if new else range(AT_ONCE)
        names = tuple(name(number, size) for number in range(first, first + AT_ONCE))
        stream.send(stored(*blocks, names=names))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= stream.indexes.memory.used_bytes <= 2 * taken


def test_the_bound_is_hard_where_names_are_many() -> None:
    """However few blocks they lead to, of whatever length."""
    stream = Stream(limit_bytes=100_000)
    memory, numbers = stream.indexes.memory, itertools.count()
    for _ in range(300):
        names = tuple(name(next(numbers), 64) for _ in range(7))
        stream.send(stored(*range(7), names=names))
        assert memory.used_bytes <= 100_000
    assert stream.feed.counters.refused > 0
    assert memory.used_bytes > 95_000


def test_a_media_key_is_charged_once() -> None:
    """Pages without are not charged as if each had one, and it goes with its page."""
    stream = Stream(limit_bytes=1 << 20)
    stream.send(stored(*range(500), size=1, names=tuple(range(500))))
    used = stream.indexes.memory.used_bytes
    long: tuple[ExtraKeys, ...] = ((["x" * 4_000, 0],),)
    stream.send(stored(7_000, size=1, names=(7_000,), extra_keys=long))
    taken = stream.indexes.memory.used_bytes - used
    assert 4_000 < taken < 6_000
    stream.send(removed(7_000), stored(0, size=1, names=(0,)))
    assert stream.indexes.memory.used_bytes == used


def test_what_long_names_took_is_forgotten_with_them() -> None:
    """An empty cache charges as it did before."""
    stream = Stream(limit_bytes=1 << 20)
    ordinary = stored(*range(100), size=4)
    stream.send(ordinary)
    used = stream.indexes.memory.used_bytes
    long: tuple[ExtraKeys, ...] = ((["x" * 4_000, 0],),)
    stream.send(CLEARED, stored(1, size=4, extra_keys=long), CLEARED, ordinary)
    assert stream.indexes.memory.used_bytes == used


@pytest.mark.parametrize("size", [1, 16])
def test_names_of_what_was_not_found_are_charged_at_once(size: int) -> None:
    """They are left when their blocks are dropped; another owner must not overdraw."""
    stream = Stream(block_size=size, limit_bytes=1 << 20)
    blocks = range(16, 64)
    stream.send(stored(*blocks, size=size))
    stream.lose()
    stream.send(removed(1))
    prompt = chain(ids_of(*blocks, size=size), 16, ROOT)
    stream.feed.confirmed(prompt, 1)
    used = stream.indexes.memory.used_bytes
    stream.send(removed(1))
    assert (stream.owner.blocks, stream.indexes.memory.used_bytes) == (1, used)
