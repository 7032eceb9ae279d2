"""The block cache of a virtual worker, against one that is plain and slow."""

import random

from hypothesis import given
from hypothesis import strategies as st

from simworker.simulate.cache import VirtualCache


class Plain:
    """The same rules with a list: the front leaves first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: dict[int, int] = {}
        self.line: list[int] = []
        self.room = 0

    def take(self, hits: list[int], new: int) -> list[int] | None:
        """Room for the blocks of a request, or None."""
        waiting = [block for block in self.line if block not in hits]
        need = new - (self.capacity - len(self.blocks) - self.room)
        if need > len(waiting):
            return None
        gone = waiting[: max(0, need)]
        for block in gone:
            del self.blocks[block]
        for block in hits:
            self.blocks[block] += 1
        self.line = [b for b in self.line if b in self.blocks and b not in hits]
        self.room += new
        return gone

    def store(self, blocks: list[int]) -> list[int]:
        """Blocks that are computed; the new ones."""
        fresh = [block for block in blocks if block not in self.blocks]
        for block in blocks:
            self.blocks[block] = self.blocks.get(block, 0) + 1
            if block in self.line:
                self.line.remove(block)
        self.room -= len(blocks)
        return fresh

    def release(self, blocks: list[int], empty: int) -> None:
        """The deepest block is the first to leave."""
        for block in blocks[::-1]:
            self.blocks[block] -= 1
            if not self.blocks[block]:
                self.line.append(block)
        self.room -= empty


@given(st.integers(0, 10_000), st.integers(4, 24))
def test_against_a_plain_cache(seed: int, capacity: int) -> None:
    """Random requests that share beginnings, several at a time."""
    rng = random.Random(seed)
    cache, plain = VirtualCache(capacity), Plain(capacity)
    running: list[tuple[list[int], int]] = []
    for _ in range(60):
        if running and rng.random() < 0.5:
            held, empty = running.pop(rng.randrange(len(running)))
            cache.release(held, empty)
            plain.release(held, empty)
            continue
        branch, size = rng.randrange(4), rng.randrange(1, 9)
        blocks = [branch * 100 * (depth > 1) + depth for depth in range(size)]
        hits = cache.lookup(blocks)
        assert all(block in plain.blocks for block in blocks[:hits])
        assert hits == size or blocks[hits] not in plain.blocks
        extra = rng.randrange(3)
        held, new = blocks[:hits], size - hits + extra
        gone = cache.take(held, new)
        assert gone == plain.take(held, new)
        if gone is None:
            continue
        assert cache.store(blocks[hits:]) == plain.store(blocks[hits:])
        running.append((blocks, extra))
        assert len(cache) == len(plain.blocks) <= capacity


def test_running_requests_keep_their_blocks() -> None:
    """What does not fit beside them has to wait."""
    cache = VirtualCache(4)
    assert cache.take([], 3) == []
    assert cache.store([1, 2, 3]) == [1, 2, 3]
    assert cache.take([], 2) is None
    assert cache.take([1, 2], 1) == []
    assert cache.take([], 1) is None


def test_the_deepest_block_leaves_first() -> None:
    """So that the beginning, which others may share, stays longest."""
    cache = VirtualCache(3)
    cache.take([], 3)
    cache.store([1, 2, 3])
    cache.release([1, 2, 3], 0)
    assert cache.take([], 2) == [3, 2]
    assert cache.lookup([1, 2, 3]) == 1


def test_two_that_computed_the_same_hold_one_copy() -> None:
    """The second finds it there when it is done."""
    cache = VirtualCache(8)
    cache.take([], 2)
    cache.take([], 2)
    assert cache.store([1, 2]) == [1, 2]
    assert cache.store([1, 2]) == []
    cache.release([1, 2], 0)
    assert cache.take([], 7) is None
    cache.release([1, 2], 0)
    assert cache.take([], 7) == [2]


def test_a_restart_empties_it() -> None:
    """Room that was taken is free again."""
    cache = VirtualCache(4)
    cache.take([], 4)
    cache.store([1, 2])
    cache.clear()
    assert (len(cache), cache.lookup([1, 2])) == (0, 0)
    assert cache.take([], 4) == []
