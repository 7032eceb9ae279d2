"""Names from before doubts, and what a doubt may cost."""

from kvindex.events import EngineHash
from kvindex.feed import FeedSettings
from kvindex.generations import SMALL, Generations
from kvindex.sharded import ShardedDict
from tests.kvindex.engine import Stream, removed, stored

MANY = SMALL + 1


def numbers(start: int, count: int) -> dict[EngineHash, int]:
    """Names from `start` on, each with its negative."""
    return {name: -name for name in range(start, start + count)}


def table(start: int, count: int) -> ShardedDict[EngineHash, int]:
    """A generation of these."""
    names: ShardedDict[EngineHash, int] = ShardedDict()
    names.extend(range(start, start + count), range(-start, -start - count, -1))
    return names


def test_all_generations_are_looked_at() -> None:
    """Whichever a name is in."""
    names = Generations()
    assert not names
    for start in (10_000, 20_000, 30_000):
        names.add(table(start, MANY))
    assert len(names) == 3 * MANY
    assert (names.get(20_001), names.get(9)) == (-20_001, None)
    assert 30_000 in names
    assert names.has_none_of({1, 2})
    assert not names.has_none_of({1, 10_000})
    assert (names.pop(10_000), names.pop(10_000)) == (-10_000, None)
    taken = dict(names.take() for _ in range(len(names)))
    left = numbers(10_001, MANY - 1) | numbers(20_000, MANY) | numbers(30_000, MANY)
    assert taken == left
    assert not names


def test_a_large_generation_is_not_copied() -> None:
    """It is kept as it is, beside others."""
    names, tables = Generations(), [table(1, MANY), table(50_000, MANY)]
    for each in tables:
        names.add(each)
    assert [id(each) for each in names.tables] == [id(each) for each in tables]


def test_small_generations_are_put_together() -> None:
    """So however many there are, no look-up goes through many tables."""
    names = Generations()
    for start in range(1, 10 * SMALL, 64):
        names.add(table(start, 64))
    names.add(ShardedDict())
    assert len(names) == 10 * SMALL
    assert len(names.tables) <= 11


def test_generations_are_gathered_in_slices() -> None:
    """None is lost or in two tables meanwhile, and at last there is one."""
    names = Generations()
    for start in (100_000, 200_000, 300_000):
        names.add(table(start, MANY))
    assert names.gather(1_000)
    assert (len(names), len(names.tables)) == (3 * MANY, 3)
    assert (names.get(200_000), names.pop(300_000)) == (-200_000, -300_000)
    while names.gather(1_000):
        assert len(names) == 3 * MANY - 1
    assert len(names.tables) == 1
    assert dict(names.take() for _ in range(len(names))) == (
        numbers(100_000, MANY) | numbers(200_000, MANY) | numbers(300_001, MANY - 1)
    )


def test_many_gaps_leave_one_table() -> None:
    """Of names from before them: what is told later is looked up in no more."""
    stream = Stream(block_size=16)
    for gap in range(4):
        first = 10_000 * gap
        for start in range(first, first + MANY, 500):
            names = tuple(range(start + 1, start + 501))
            stream.send(stored(*names, parent=start if start > first else None))
        stream.lose()
    stream.send()
    holder = stream.feed._intake.holder
    assert holder is not None
    (blocks,) = holder._names.maps.values()
    assert len(blocks.previous.tables) > 1
    while stream.feed.tick():
        pass
    assert len(blocks.previous.tables) == 1


def test_several_gaps_are_one_doubt() -> None:
    """Of all that was stored before them; what is stored again has one copy."""
    blocks = tuple(range(1, 5))
    stream = Stream(block_size=16, settings=FeedSettings(suspect_ttl_s=10.0))
    for block in blocks:
        stream.send(stored(block, block, names=(block, block + 100)))
        stream.lose()
    stream.send(stored(1, names=(1,)), stored(2, names=(2,)), removed(1))
    assert stream.owner.suspect_blocks > 0
    stream.clock.now += 20
    for _ in range(5):
        stream.feed.tick()
    assert (stream.feed.state, stream.owner.blocks) == ("live", 1)
    assert stream.held(2) == 1
