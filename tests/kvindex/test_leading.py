"""Leading blocks by bit: as a scan finds them, and in few probes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvindex import leading
from kvindex.bitsets import BitTable
from kvindex.leading import LeadingBlocks


class Counted(BitTable):
    """A table that counts how often it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        outer = self

        class Shard(dict[int, int]):
            def get(self, key: int, default: int = 0) -> int:  # type: ignore[override]
                outer.looks += 1
                return super().get(key, default)

        self.shards = [Shard() for _ in self.shards]


def filled(table: BitTable, hashes: list[int], lengths: list[int]) -> None:
    """Bit i is set on the first `lengths[i]` blocks."""
    for position, block_hash in enumerate(hashes):
        bits = sum(1 << bit for bit, n in enumerate(lengths) if position < n)
        table.put(block_hash, bits)


def by_bit(groups: list[tuple[int, int]], bits: int) -> list[int]:
    """The length of each bit; every bit is in one group."""
    found = {}
    for group, length in groups:
        for bit in range(bits):
            if group >> bit & 1:
                assert bit not in found
                found[bit] = length
    return [found[bit] for bit in range(bits)]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.integers(0, 40),
    st.integers(0, 60),
)
def test_as_a_scan_finds_them(lengths: list[int], asked: int, guess: int) -> None:
    """Whatever was guessed before, and however much of the prompt is asked for."""
    hashes, table = [1000 + n for n in range(40)], BitTable()
    filled(table, hashes, lengths)
    search = LeadingBlocks(table)
    search._guesses[hashes[0]] = guess
    every = (1 << len(lengths)) - 1
    for _ in range(2):
        groups = search.groups(hashes[:asked], every)
        expected = [min(n, asked) for n in lengths]
        assert by_bit(groups, len(lengths)) == expected
        sizes = [group.bit_count() for group, _ in groups]
        assert max(sizes) == sizes[-1]


def test_few_probes() -> None:
    """A miss costs one; what is shared alike two more once it is known."""
    rng, table = random.Random(1), Counted()
    hashes = [rng.getrandbits(64) for _ in range(2048)]
    filled(table, hashes, [128] * 7 + [1500])
    search = LeadingBlocks(table)

    def looks(prompt: list[int]) -> int:
        table.looks = 0
        search.groups(prompt, 255)
        return table.looks

    assert looks([rng.getrandbits(64) for _ in range(2048)]) == 1
    assert 15 < looks(hashes) <= 24
    assert looks(hashes) <= 1 + 2 + 11
    assert looks([*hashes[:128], *range(2000)]) == 3


def test_guesses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of any number of kinds."""
    monkeypatch.setattr(leading, "_GUESSES", 10)
    table = BitTable()
    search = LeadingBlocks(table)
    for first in range(100):
        table.put(first, 1)
        assert search.groups([first, 10**6], 1)[-1] == (1, 1)
        assert len(search._guesses) <= 10
