"""The table of bitsets: retired bits, and sweeping in slices."""

import pytest

from kvindex import bitsets
from kvindex.bitsets import BitTable


def test_put_and_get() -> None:
    """An empty bitset deletes the entry; entries are counted."""
    table = BitTable()
    table.put(5, 3)
    table.put(5 + 256, 1)
    table.put(5, 2)
    assert (table.get(5), table.get(6), table.entries) == (2, 0, 2)
    table.put(5, 0)
    table.put(7, 0)
    assert (table.get(5), table.entries) == (0, 1)


@pytest.mark.parametrize("budget", [1, 3, 100, 10_000])
def test_sweep_wipes_retired_bits_in_slices(budget: int) -> None:
    """Whatever the slices, only the retired bits go, and then they are used again."""
    table = BitTable()
    a, b = table.take_bit(), table.take_bit()
    for block_hash in range(100):
        table.put(block_hash, a | b if block_hash % 2 else a)
    table.retire(a)
    assert table.take_bit() not in (a, b)
    slices = 1
    while table.sweep(budget):
        slices += 1
        assert slices <= 1 + (256 + 100) // budget + 1
    assert [table.get(h) for h in range(4)] == [0, b, 0, b]
    assert table.entries == 50
    assert table.take_bit() == a
    assert not table.sweep(budget)


def test_bits_retired_during_a_round_wait_for_the_next() -> None:
    """Entries already passed may carry them."""
    table = BitTable()
    a, b = table.take_bit(), table.take_bit()
    for block_hash in range(256):
        table.put(block_hash, a | b)
    table.retire(a)
    assert table.sweep(200)
    table.retire(b)
    while table.sweep(50):
        pass
    assert table.entries == 0
    assert {table.take_bit(), table.take_bit()} == {a, b}


def test_entries_put_while_their_shard_is_swept() -> None:
    """A slice may meet entries that were deleted or came back in the meantime."""
    table = BitTable()
    a, b = table.take_bit(), table.take_bit()
    for position in range(10):
        table.put(position * 256, a)
    table.retire(a)
    assert table.sweep(3)
    for position in range(10):
        table.put(position * 256, b if position % 2 else 0)
    while table.sweep(2):
        pass
    assert [table.get(p * 256) for p in range(4)] == [0, b, 0, b]
    assert table.entries == 5


def test_equal_bitsets_are_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bitsets are shared; the memory of shared ones is bounded."""
    table = BitTable()
    bits = 1 << 100
    assert table.intern(bits + 0) is table.intern((1 << 99) * 2)
    monkeypatch.setattr(bitsets, "_INTERNED", 4)
    for value in range(50):
        assert table.intern(value) == value
        assert len(table._interned) <= 4
