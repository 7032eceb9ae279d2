"""How many leading blocks of a prompt each bit is set on, by few looks at a table.

Theory of operation. A bit is prefix-closed: set on a block, it is set on those before.
Of the bits on block 0, probe the middle block, split them into those that are set there
and those that are not, go on in both halves: about 11 probes of 2,048 blocks for each
distinct length. Prompts that begin alike mostly share alike (a system prompt), so where
most bits ended is remembered by block 0 and probed first; a wrong guess costs two.

Not here: what a bit means (`prefix_index.py`).
"""

from collections.abc import Sequence

from kvindex.bitsets import SHARD_MASK, BitTable

_GUESSES = 4_096


class LeadingBlocks:
    """Searches one table; remembers where prompts parted."""

    def __init__(self, table: BitTable) -> None:
        self._table = table
        self._guesses: dict[int, int] = {}

    def groups(self, hashes: Sequence[int], bits: int) -> list[tuple[int, int]]:
        """(bits, leading blocks) of all of `bits`; the group with most bits is last."""
        first = self._table.get(hashes[0]) & bits if hashes else 0
        if not first:
            return [(bits, 0)]
        guess = self._guesses.get(hashes[0], 0)
        groups = self._lengths(hashes, first, guess)
        groups.append((bits ^ first, 0))
        groups.sort(key=_bits_of)
        shared = groups[-1][1]
        if shared != guess:
            if len(self._guesses) >= _GUESSES:  # only speed is lost
                self._guesses.clear()
            self._guesses[hashes[0]] = shared
        return groups

    def _lengths(
        self, hashes: Sequence[int], first: int, guess: int
    ) -> list[tuple[int, int]]:
        """Of the bits that are set on the first block."""
        shards, lengths = self._table.shards, []
        todo = [(1, len(hashes), first)]
        while todo:
            low, high, live = todo.pop()
            while low < high:
                middle = (low + high + 1) >> 1
                if low <= guess <= high:
                    middle = guess + (low <= guess < high)
                block_hash = hashes[middle - 1]
                have = shards[block_hash & SHARD_MASK].get(block_hash, 0) & live
                if have == live:
                    low = middle
                elif have:
                    todo.append((low, middle - 1, live ^ have))
                    live, low = have, middle
                else:
                    high = middle - 1
            lengths.append((live, low))
        return lengths


def _bits_of(group: tuple[int, int]) -> int:
    return group[0].bit_count()
