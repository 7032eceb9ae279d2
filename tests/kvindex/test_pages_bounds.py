"""Small pages: doubt, bounds, and any order of moves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvindex import pages
from kvindex.blocks import chain, pack_ids
from kvindex.feed import FeedSettings
from tests.kvindex.engine import ROOT, Stream
from tests.kvindex.test_pages import blocks_held, gone, page


def test_pages_in_doubt_settle() -> None:
    """Those of a block stored again stay, the others go."""
    stream = Stream(settings=FeedSettings(suspect_ttl_s=5))
    ids = list(range(64))
    stream.send(page(ids, 1), page([90, 91, 92, 93], 50))
    stream.lose()
    stream.send(page(ids[:16], 1))
    found = stream.index.match(chain(pack_ids(ids), 16, ROOT), [stream.owner])[0]
    assert found.suspects == (1, 2, 3)
    stream.feed.confirmed(chain(pack_ids(ids), 16, ROOT), 2)
    found = stream.index.match(chain(pack_ids(ids), 16, ROOT), [stream.owner])[0]
    assert (found.blocks, found.suspects) == (2, ())
    stream.send(page([91] * 16, 60))
    stream.lose()
    stream.send(page(ids[:32], 1))
    stream.clock.now += 6
    stream.feed.tick()
    stream.feed.tick()
    assert stream.feed.state == "live"
    assert (blocks_held(stream, ids), stream.owner.blocks) == (2, 2)
    stream.send(gone(*range(1, 17), 50))
    assert stream.owner.blocks == 0


def test_a_walk_without_doubt_keeps_pages() -> None:
    """Trusted again before it began."""
    stream = Stream()
    ids = list(range(16))
    stream.send(page(ids, 1))
    stream.feed.disconnected("peer closed")
    stream.send()
    stream.feed.tick()
    stream.send(gone(4))
    assert blocks_held(stream, ids) == 0


def test_pages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that never make a block."""
    monkeypatch.setattr(pages, "_SPARE_PAGES", 10)
    stream = Stream()
    for name in range(50):
        stream.send(page([name] * 4, name))
    holder = stream.feed._intake.holder
    assert holder is not None
    assert len(holder.shelf._pages) == 11  # type: ignore[attr-defined]
    assert stream.feed.counters.refused == stream.index.refused == 39


def test_blocks_of_pages_are_bounded() -> None:
    """The first page that has no room is refused, and all after it."""
    stream = Stream(limit_bytes=9000)
    for name in range(0, 400, 4):
        stream.send(page([name] * 16, name))
    assert stream.owner.blocks == 2
    assert stream.feed.counters.refused == stream.index.refused == 2 + 97 * 4
    assert stream.indexes.memory.used_bytes == 2 * 3254 + 2 * pages.PAGE_BYTES
    for name in range(0, 400, 4):
        stream.send(gone(name + 3, name + 2, name + 1, name))
    assert stream.owner.blocks == 0
    assert not stream.feed._intake.holder.shelf._pages  # type: ignore[union-attr]


def test_a_refused_copy_in_another_medium() -> None:
    """The medium that was there before stays."""
    stream = Stream(limit_bytes=10_000)
    ids = list(range(16))
    stream.send(page(ids[:12], 1, medium="CPU"), page(ids[:12], 1))
    stream.indexes.memory.limit_bytes = 0
    stream.send(page(ids[12:], 4, parent=3))
    assert blocks_held(stream, ids) == 0
    stream.indexes.memory.limit_bytes = 10_000
    stream.send(page(ids[12:], 4, parent=3))
    assert stream.owner.gpu_blocks == 1
    stream.send(page(ids[12:], 4, parent=3, medium="CPU"), gone(4))
    assert (blocks_held(stream, ids), stream.owner.gpu_blocks) == (1, 0)


def test_a_page_of_two_blocks_of_which_one_is_refused() -> None:
    """Then neither is held through it."""
    stream = Stream()
    left, right = list(range(16)), [*range(8), *range(50, 58)]
    stream.send(page(left, 1), page(right[8:], 11, parent=2))
    stream.send(gone(2))
    memory = stream.indexes.memory
    memory.limit_bytes = memory.used_bytes + 3500
    stream.send(page(left[4:8], 2, parent=1))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (0, 0)
    assert stream.feed.counters.refused == 1
    memory.limit_bytes += 7000
    stream.send(page(left[4:8], 2, parent=1))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (1, 1)


def test_pages_in_two_media_settle_together() -> None:
    """The second name finds the page gone."""
    stream = Stream(settings=FeedSettings(suspect_ttl_s=5))
    stream.send(page(list(range(16)), 1), page(list(range(16)), 1, medium="CPU"))
    stream.lose()
    stream.send()
    stream.clock.now += 6
    stream.feed.tick()
    stream.feed.tick()
    assert (stream.feed.state, stream.owner.blocks) == ("live", 0)


def test_the_doubt_lasts_as_long_as_the_walk() -> None:
    """A page that is in no block yet may be gone: no block is made of it."""
    stream = Stream()
    ids, lone = list(range(16)), [*range(50, 66)]
    stream.send(page(lone[:12], 9001), page(ids, 1))
    stream.send(*(page([n] * 4, n) for n in range(100, 5000)))
    stream.lose()
    stream.send(page(ids, 1))
    stream.feed.tick()
    stream.send(page(lone[12:], 9004, parent=9003))
    assert (stream.feed.state, stream.owner.suspect_blocks) == ("degraded", 1)
    stream.clock.now += stream.feed.settings.suspect_ttl_s
    while stream.feed.tick():
        assert blocks_held(stream, lone) == 0
    assert stream.feed.state == "live"
    assert (blocks_held(stream, ids), blocks_held(stream, lone)) == (1, 0)
    stream.send(gone(2))
    assert blocks_held(stream, ids) == 0


def test_a_page_held_that_is_refused_again() -> None:
    """It stays; the block it would complete is not claimed."""
    stream = Stream()
    ids = list(range(16))
    hashes = chain(pack_ids(ids), 16, ROOT)
    stream.send(page(ids, 1))
    stream.lose()
    stream.send()
    stream.feed.confirmed(hashes, 0)
    memory = stream.indexes.memory
    memory.limit_bytes = 0
    stream.send(page(ids[12:], 4, parent=3))
    assert blocks_held(stream, ids) == 0
    memory.limit_bytes = 1 << 20
    stream.send(page(ids[12:], 4, parent=3))
    assert blocks_held(stream, ids) == 1


MOVES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 1), st.integers(0, 3)),
    max_size=100,
)


@settings(max_examples=60)
@given(MOVES)
def test_pages_against_sets(moves: list[tuple[int, int, int]]) -> None:
    """Random pages under random parents, stored and removed; blocks of four pages."""
    stream = Stream(block_size=4)
    paths: list[tuple[int, ...]] = [()]
    held: set[tuple[int, ...]] = set()
    for pick, last, store in moves:
        path = paths[pick % len(paths)]
        if store:
            path = (*path, last)
            if path in held or (path[:-1] and path[:-1] not in held):
                continue
            parent = hash(path[:-1]) & (2**64 - 1) if path[:-1] else None
            stream.send(page([last] * 4, hash(path) & (2**64 - 1), parent))
            held.add(path)
            paths.append(path)
        elif path in held:
            stream.send(gone(hash(path) & (2**64 - 1)))
            held.discard(path)
    blocks = {
        path
        for path in held
        if len(path) % 4 == 0
        and all(path[:end] in held for end in range(len(path) - 3, len(path)))
    }
    assert stream.owner.blocks == len(blocks)
    for path in blocks:
        ids = [i for last in path for i in [last] * 4]
        own_hash = chain(pack_ids(ids), 16, ROOT)[-1]
        assert stream.index.holds(stream.owner, own_hash)
