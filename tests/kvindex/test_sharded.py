"""A dictionary in shards: as one dictionary, but that none of them becomes large."""

from hypothesis import given
from hypothesis import strategies as st

from kvindex.events import EngineHash
from kvindex.sharded import SHARDS, UNSPREAD, ShardedDict
from kvindex.waste import Waste

KEYS = st.integers(0, 20) | st.binary(max_size=1)
STEPS = st.lists(st.tuples(st.sampled_from(["set", "pop", "drop", "update"]), KEYS))


@given(STEPS, st.booleans())
def test_it_is_a_dictionary(steps: list[tuple[str, EngineHash]], spread: bool) -> None:
    """Before it is spread, and after."""
    table: ShardedDict[EngineHash, int] = ShardedDict()
    if spread:
        table._prepare(UNSPREAD + 1)
    plain: dict[EngineHash, int] = {}
    for number, (what, key) in enumerate(steps):
        if what == "set":
            table[key] = plain[key] = number
        elif what == "pop":
            assert table.pop(key) == plain.pop(key, None)
        elif what == "drop":
            odd = [each for each in (key, 1_000) if plain.get(each, 0) % 2]
            assert table.drop((key, 1_000), lambda value: value % 2 == 1) == odd
            for each in odd:
                del plain[each]
        else:
            table.update((key, 1_000), (number, number))
            plain[key] = plain[1_000] = number
        assert (len(table), table.entries) == (len(plain), len(plain))
        assert table.get(key) == plain.get(key)
        assert (key in table) == (key in plain)
        assert table.has_none_of({key}) == (key not in plain)
    assert len(table.shards) == (SHARDS if spread else 1)
    assert set(table) == set(plain)
    assert sorted(table.values()) == sorted(plain.values())
    assert dict(table.popitem() for _ in range(len(table))) == plain


def test_no_shard_becomes_large() -> None:
    """However its keys come: numbers in a row, or with their lowest bits all alike."""
    for step in (1, 256, 1 << 40):
        table: ShardedDict[int, int] = ShardedDict()
        table.extend(range(0, 100_000 * step, step), range(100_000))
        assert max(map(len, table.shards)) < 2 * 100_000 / SHARDS
        assert (table[50 * step], table.get(1 << 60)) == (50, None)


def test_what_is_empty_gives_its_memory_back() -> None:
    """Each shard for itself; the whole by slices."""
    table: ShardedDict[int, int] = ShardedDict()
    table.extend(range(100_000), range(100_000))
    for key in range(0, 100_000, SHARDS):
        table.pop(key)
    assert table.shards[0].__sizeof__() == {}.__sizeof__()
    waste, slices = Waste(), 1
    waste.add(*table.shards)
    while waste.free(1_000):
        slices += 1
    assert slices == -(-(100_000 - 399) // 1_000)
