"""What one owner's events do: orphans, refusals, doubts, clearing."""

from kvindex.blocks import Namespace, chain
from kvindex.events import media_key
from kvindex.feed import FeedSettings
from kvindex.orphans import ORPHAN_BYTES
from kvindex.owner import BLOCK_BYTES, HOLDING_BYTES, NAME_BYTES
from tests.kvindex.engine import (
    CLEARED,
    MODEL,
    Stream,
    ids_of,
    removed,
    stored,
)


def test_orphans_wait_for_their_parent() -> None:
    """Children and grandchildren, in any order; then all are found."""
    stream = Stream()
    stream.lose()
    stream.send(stored(5, parent=4))
    stream.send(stored(3, 4, parent=2))
    stream.send(stored(30, parent=3))
    assert (stream.feed.orphans, stream.feed.counters.orphans) == (4, 4)
    assert (stream.owner.blocks, stream.feed.complete) == (0, False)
    stream.send(stored(1, 2))
    assert stream.feed.orphans == 0
    assert (stream.held(1, 2, 3, 4, 5), stream.held(1, 2, 3, 30)) == (5, 4)


def test_orphans_have_copies_and_removals() -> None:
    """As other blocks have; their children wait on."""
    stream = Stream()
    stream.send(stored(2, 3, parent=1), stored(3, parent=2), stored(4, parent=3))
    stream.send(removed(2), removed(99))
    stream.send(stored(1))
    assert (stream.held(1), stream.feed.orphans) == (1, 2)
    stream.send(stored(2, parent=1))
    assert stream.held(1, 2, 3, 4) == 4
    stream.send(removed(3))
    assert stream.held(1, 2, 3) == 3
    stream.send(removed(3))
    assert stream.held(1, 2, 3) == 2


def test_orphans_are_bounded() -> None:
    """The oldest go, and are counted."""
    stream = Stream(settings=FeedSettings(orphan_blocks=10))
    for block in range(100, 125):
        stream.send(stored(block, parent=1))
    assert stream.feed.orphans == 10
    assert stream.feed.counters.orphans_dropped == 15
    stream.send(stored(1))
    assert (stream.held(1, 114), stream.held(1, 115)) == (1, 2)


def test_orphans_with_media_and_salt() -> None:
    """The salt follows from the parent, the media from the event."""
    stream = Stream()
    stream.send(stored(2, names=(72,), parent=71, extra_keys=((["img", 0],),)))
    stream.send(stored(1, names=(71,), extra_keys=(("a",),)))
    root = Namespace(model=MODEL, salt="a").root()
    hashes = chain(ids_of(1, 2), 16, root, {1: media_key([["img", 0]])})
    assert stream.index.match(hashes, [stream.owner])[0].blocks == 2


def test_a_block_that_is_its_own_parent() -> None:
    """One name for two contents: what is below it is left out, and nothing loops."""
    stream = Stream()
    stream.send(stored(7, parent=7), stored(7), stored(7, parent=7))
    assert (stream.owner.blocks, stream.feed.orphans) == (2, 0)
    stream.send(removed(7))
    assert stream.owner.blocks == 0


def test_blocks_refused_at_the_bound() -> None:
    """The rest of the event is refused with them; the feed is incomplete."""
    stream = Stream(limit_bytes=1000, block_size=16)
    stream.send(stored(*range(1, 10)))
    kept = stream.owner.blocks
    assert 0 < kept < 9
    assert stream.feed.counters.refused == 9 - kept
    assert not stream.feed.complete
    assert stream.feed.reason == "not all blocks are indexed"
    stream.send(stored(50, names=(1,)))
    stream.send(stored(20, parent=9))
    assert (stream.feed.orphans, stream.feed.counters.orphans_dropped) == (0, 1)
    stream.send(CLEARED, stored(1))
    assert stream.feed.complete


def test_orphans_are_within_the_bound() -> None:
    """They are charged with what they take, and are the first to go."""
    stream = Stream(limit_bytes=10_000, block_size=16)
    memory = stream.indexes.memory
    stream.send(stored(2, 3, 4, parent=1))
    assert memory.used_bytes == 3 * (ORPHAN_BYTES + 64)
    stream.send(stored(1))
    assert stream.owner.blocks == stream.held(1, 2, 3, 4) == 4
    assert memory.used_bytes == 4 * (BLOCK_BYTES + HOLDING_BYTES)
    stream.send(stored(*range(20, 60), parent=19))
    assert (stream.feed.orphans, stream.feed.counters.orphans_dropped) == (0, 40)
    assert memory.used_bytes == 4 * (BLOCK_BYTES + HOLDING_BYTES)
    stream.send(stored(6, parent=5))
    assert stream.feed.orphans == 1
    stream.send(removed(6))
    stream.send(stored(7, parent=6))
    memory.limit_bytes = 1000
    stream.send(stored(8, parent=1))
    assert stream.feed.counters.orphans_dropped == 41
    stream.feed.retire()
    stream.send(stored(8, parent=7))
    assert memory.used_bytes == 4 * BLOCK_BYTES


def test_orphans_of_large_blocks_are_within_the_bound() -> None:
    """Their number alone bounds nothing."""
    stream = Stream(limit_bytes=1 << 20)
    for block in range(100):
        stream.send(stored(block, parent=1000 + block, size=10_000))
        assert stream.indexes.memory.used_bytes <= 1 << 20
    assert 0 < stream.feed.orphans < 27


def test_names_beyond_one_a_block_are_charged() -> None:
    """So many names of few blocks stop at the bound, and removals make room."""
    stream = Stream(limit_bytes=10_000)
    memory = stream.indexes.memory
    for name in range(0, 400, 2):
        stream.send(stored(1, 2, names=(name, name + 1)))
    assert stream.owner.blocks == 2
    assert 9_500 < memory.used_bytes <= 10_000
    refused = stream.feed.counters.refused
    assert stream.feed.counters.stored == 400 - refused
    assert stream.index.refused == refused > 0
    assert not stream.feed.complete
    stream.send(CLEARED, stored(1))
    assert memory.used_bytes == BLOCK_BYTES + HOLDING_BYTES


def test_a_second_medium_is_charged() -> None:
    """A name in each, so two."""
    stream = Stream()
    stream.send(stored(1), stored(1, medium="CPU"))
    used = stream.indexes.memory.used_bytes
    assert used == BLOCK_BYTES + HOLDING_BYTES + NAME_BYTES


def test_a_doubt_forgets_copies() -> None:
    """Removals were missed perhaps: one more ends it."""
    stream = Stream()
    stream.send(stored(1), stored(1), stored(2, names=(8,)), stored(2, names=(9,)))
    stream.lose()
    stream.send(stored(3))
    stream.send(removed(1), removed(8))
    assert (stream.held(1), stream.held(2)) == (0, 0)


def test_a_block_stored_again_after_a_doubt_has_one_copy() -> None:
    """Its earlier copy may have been removed unseen."""
    stream = Stream()
    stream.send(stored(1, 2))
    stream.lose()
    stream.send(stored(2, parent=1))
    stream.send(removed(2))
    assert stream.held(1, 2) == 1
    stream.send(stored(5, names=(1,)))
    assert (stream.held(1), stream.held(5)) == (0, 1)


def test_doubts_pile_up() -> None:
    """Maps of several doubts are one."""
    stream = Stream()
    stream.send(stored(1, 2, 3))
    for block in (4, 5):
        stream.lose()
        stream.send(stored(block))
    stream.lose()
    stream.send(*(stored(100 + n) for n in range(10)))
    stream.lose()
    stream.send(stored(6, parent=3))
    assert stream.held(1, 2, 3, 6) == 4
    stream.send(*(removed(n) for n in (6, 3, 2, 1, 4, 5, *range(100, 110))))
    assert stream.owner.blocks == 0


def test_large_caches_are_cleared_without_a_walk() -> None:
    """The maps are given back in slices later."""
    stream = Stream()
    stream.send(stored(*range(1, 10_001)), stored(20_000, medium="CPU"))
    stream.send(CLEARED)
    assert stream.owner.blocks == 0
    stream.send(stored(1, 2))
    for _ in range(5):
        stream.feed.tick()
    assert stream.held(1, 2) == 2
    while stream.indexes.sweep(1000):
        pass
    assert stream.index.blocks == 2


def test_small_caches_leave_nothing_to_sweep() -> None:
    """Clearing again and again costs the index nothing."""
    stream = Stream()
    for _ in range(2000):
        stream.send(stored(1, 2), stored(3, medium="CPU"), CLEARED)
    assert stream.index.blocks == 0
    assert stream.index.add_owner("next").gpu < 1 << 8


def test_orphans_inside_a_run() -> None:
    """A block that waited and then comes with its parent is one copy, or two."""
    stream = Stream()
    stream.send(stored(2, parent=1), stored(3, parent=2), stored(33, parent=2))
    stream.send(stored(1, 2, 3))
    assert (stream.held(1, 2, 3), stream.held(1, 2, 33)) == (3, 3)
    stream.send(removed(33), removed(3))
    assert stream.held(1, 2, 3) == 2
    stream.send(stored(5, parent=4), stored(4, 5, parent=2), removed(5))
    assert stream.held(1, 2, 4, 5) == 4


def test_an_orphan_below_something_else_is_no_copy() -> None:
    """It has the name of a block that is stored elsewhere: one removal ends that."""
    stream = Stream()
    stream.send(stored(2, parent=77), stored(1), stored(2, parent=1))
    assert stream.held(1, 2) == 2
    stream.send(removed(2))
    assert stream.held(1, 2) == 1


def test_a_run_refused_while_orphans_wait() -> None:
    """All that follows the first refused block is refused."""
    stream = Stream(limit_bytes=500, block_size=16)
    stream.send(stored(9, parent=8))
    stream.send(stored(1, 2, 3, 4))
    assert stream.owner.blocks == 2
    assert stream.feed.counters.refused == 2


def test_a_run_partly_known_is_refused_at_the_bound() -> None:
    """What is known is noted with its copies, the first new block ends it."""
    stream = Stream(limit_bytes=900, block_size=16)
    stream.send(stored(1, 2))
    stream.send(stored(1, 2, 3, 4))
    assert (stream.owner.blocks, stream.feed.counters.refused) == (2, 2)
    assert stream.indexes.memory.used_bytes == 2 * (
        BLOCK_BYTES + HOLDING_BYTES + NAME_BYTES
    )
    stream.send(removed(1, 2))
    assert stream.held(1, 2) == 2


def test_extra_keys_without_end_are_rejected() -> None:
    """The event is skipped, by its own reason, and the feed goes on."""
    stream = Stream()
    endless = (("x" * 5_000,),)
    stream.send(stored(1), stored(2, parent=1, extra_keys=endless), stored(3, parent=1))
    assert stream.feed.counters.rejected == {"extra_keys": 1}
    assert (stream.owner.blocks, stream.held(1, 3), stream.held(1, 2)) == (2, 2, 1)
    assert not stream.feed.complete


def test_a_store_in_one_medium_says_nothing_of_another() -> None:
    """After a gap the GPU copy is told again and then removed: that of the host is
    still in doubt, and goes when doubt has lasted."""
    stream = Stream()
    stream.send(stored(1), stored(1, medium="CPU"))
    stream.lose()
    stream.send(stored(1))
    assert stream.owner.suspect_blocks == 0
    stream.send(removed(1))
    assert (stream.held(1), stream.owner.suspect_blocks) == (1, 1)
    stream.clock.now += stream.feed.settings.suspect_ttl_s
    stream.feed.tick()
    stream.feed.tick()
    assert (stream.held(1), stream.feed.state) == (0, "live")


def test_doubt_ends_for_the_medium_that_was_told() -> None:
    """The other one is believed no more, wherever the block is now."""
    stream = Stream()
    stream.send(stored(1), stored(1, medium="CPU"))
    stream.lose()
    stream.send(stored(1))
    stream.feed.tick()
    assert (stream.held(1), stream.feed.state) == (1, "live")
    stream.send(removed(1))
    assert stream.held(1) == 0
