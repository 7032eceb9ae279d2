"""Copies in other tiers, of which events tell names and no tokens."""

import msgspec

from kvindex.blocks import Namespace
from kvindex.events import BlockStored, EngineHash
from kvindex.feed import FeedSettings
from kvindex.intake import SLICE
from tests.kvindex.engine import MODEL, Stream, removed, stored


def bare(
    *names: EngineHash,
    medium: str | None = "CPU",
    group: int | None = None,
    locality: str | None = None,
) -> BlockStored:
    """Blocks that are named only, as vLLM's connectors do."""
    return BlockStored(
        hashes=names,
        token_ids=b"",
        block_size=0,
        medium=medium,
        group=group,
        locality=locality,
    )


def test_a_copy_outlives_the_gpus() -> None:
    """It is held, off the GPU, until the tier drops it; nothing is gone before."""
    stream, gone = Stream(block_size=16), list[int]()
    shelf = stream.feed._intake.holder
    assert shelf is not None
    shelf.shelf._on_gone = gone.append  # type: ignore[attr-defined]
    stream.send(stored(1, 2, 3), bare(1), bare(2), bare(3))
    stream.send(removed(3), removed(2), removed(1))
    assert (stream.held(1, 2, 3), stream.owner.gpu_blocks, gone) == (3, 0, [])
    assert stream.feed.counters.rejected == {}
    assert stream.feed.complete
    stream.send(removed(3, 2, medium="CPU"))
    assert (stream.held(1, 2, 3), len(gone)) == (1, 2)


def test_a_copy_told_twice_goes_at_once() -> None:
    """A tier has one of each."""
    stream = Stream(block_size=16)
    stream.send(stored(1), bare(1), bare(1), removed(1))
    assert stream.held(1) == 1
    stream.send(removed(1, medium="CPU"))
    assert stream.held(1) == 0


def test_salted_blocks_stay_apart() -> None:
    """The name says what they are, salt and all."""
    salted = Namespace(model=MODEL, salt="s").root()
    stream = Stream(block_size=16)
    stream.send(stored(1, names=(9,), extra_keys=(("s",),)), bare(9), removed(9))
    assert (stream.held(1), stream.held(1, root=salted)) == (0, 1)


def test_unknown_names_are_rejected() -> None:
    """With a reason; those that are known count all the same."""
    stream = Stream(block_size=16)
    stream.send(stored(1, 2), bare(1, 7), bare(8), removed(2), removed(1))
    assert stream.held(1, 2) == 1
    assert stream.feed.counters.rejected == {"no_tokens": 2}
    assert not stream.feed.complete


def test_a_name_is_one_groups() -> None:
    """Layers that keep only a window name their blocks as the others do."""
    stream = Stream(block_size=16)
    stream.send(stored(1, group=0, group_kind="full_attention"))
    stream.send(stored(1, group=1, group_kind="sliding_window"))
    stream.send(bare(1, group=1), removed(1, group=0))
    assert stream.held(1) == 0


def test_what_was_in_doubt_is_held_in_the_tier() -> None:
    """Where else it was is in doubt, not what it is."""
    stream = Stream(block_size=16, settings=FeedSettings(suspect_ttl_s=10.0))
    stream.send(stored(1, 2))
    stream.lose()
    stream.send(bare(1))
    assert stream.owner.suspect_blocks == 1
    stream.clock.now += 20
    while stream.feed.tick() or stream.feed.state != "live":
        pass
    assert (stream.held(1, 2), stream.owner.blocks) == (1, 1)


def test_a_large_event_is_applied_in_slices() -> None:
    """As one with tokens is."""
    stream = Stream(block_size=16)
    blocks = tuple(range(1, 4 * SLICE + 1))
    stream.send(stored(*blocks))
    stream.feed.sliced = True
    stream.send(bare(*blocks), removed(*blocks))
    steps = 1
    while stream.feed.work(SLICE):
        steps += 1
    assert steps >= 8
    assert (stream.owner.blocks, stream.owner.gpu_blocks) == (len(blocks), 0)


def test_pages_are_known_by_name_too() -> None:
    """Smaller ones, collected to blocks."""
    stream = Stream(block_size=8)
    stream.send(stored(1, 2, size=8), bare(1, 2), removed(2), removed(1))
    assert (stream.owner.blocks, stream.owner.gpu_blocks) == (1, 0)


def test_the_memory_bound_refuses_copies() -> None:
    """One name more is memory, too."""
    stream = Stream(block_size=16, limit_bytes=12_000)
    stream.send(stored(*range(1, 51)))
    blocks = stream.owner.blocks
    for name in range(1, blocks + 1):
        stream.send(bare(name))
    memory = stream.index.memory
    assert memory.used_bytes <= memory.limit_bytes
    assert stream.feed.counters.refused > 0


def test_before_any_block_is_known() -> None:
    """Names mean nothing; empty events less."""
    stream = Stream()
    stream.send(bare(1), bare())
    assert stream.feed.counters.rejected == {"no_tokens": 2}
    assert stream.feed.owner is None


def chunk(number: int, size: int = 64) -> BlockStored:
    """One of a tier, as large as four blocks."""
    return msgspec.structs.replace(stored(number, size=size), medium="CPU")


def test_a_tiers_chunks_are_no_new_block_size() -> None:
    """However many come: rejected, and what is held stays."""
    stream = Stream(block_size=16)
    stream.send(stored(*range(1, 9)))
    for number in range(60, 70):
        stream.send(chunk(number))
    assert (stream.feed.block_size, stream.held(*range(1, 9))) == (16, 8)
    assert stream.feed.counters.rejected == {"block_size": 10}
    assert not stream.feed.complete
    stream.send(stored(9, parent=8))
    assert stream.held(*range(1, 10)) == 9


def test_chunks_do_not_hide_a_new_block_size() -> None:
    """The GPU's events decide, whatever a tier says between."""
    stream = Stream(block_size=16)
    stream.send(stored(1, 2))
    for number in range(60, 64):
        stream.send(stored(number, size=32), chunk(number))
    assert stream.feed.block_size == 32


def test_a_tier_that_is_heard_first() -> None:
    """Its size counts until the GPU's is heard, even by a block alone."""
    stream = Stream()
    stream.send(chunk(60), chunk(61))
    assert stream.feed.block_size == 64
    stream.send(stored(1), stored(2, parent=1))
    assert (stream.feed.block_size, stream.held(1, 2)) == (16, 2)
