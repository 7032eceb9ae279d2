"""Which events count, and for what block size."""

import msgspec
import pytest

from kvindex.events import BlockStored
from kvindex.intake import RESIZE_AFTER, RESIZES
from tests.kvindex.engine import MODEL, Stream, removed, stored


@pytest.mark.parametrize("kind", ["full_attention", "mla_attention", None])
def test_full_attention_is_indexed(kind: str | None) -> None:
    """And events of workers that name no kind."""
    stream = Stream()
    stream.send(stored(1, group=0, group_kind=kind))
    assert stream.held(1) == 1


@pytest.mark.parametrize("kind", ["sliding_window", "mamba", "unknown", ""])
def test_other_groups_are_not(kind: str) -> None:
    """Nor do their removals touch what is indexed."""
    stream = Stream()
    stream.send(stored(1, 2, group=0, group_kind="full_attention"))
    stream.send(stored(1, group=1, group_kind=kind))
    stream.send(removed(1, group=1), removed(2, group=1))
    assert stream.held(1, 2) == 2
    assert stream.feed.counters.rejected == {"group_kind": 1}
    assert stream.feed.complete


@pytest.mark.parametrize("late", [False, True])
def test_nothing_but_other_groups(late: bool) -> None:
    """Not all is known then, and why; until a group comes that counts, or never."""
    stream = Stream(block_size=16)
    stream.next = 5 * late
    stream.send(stored(1, group=1, group_kind="sliding_window"))
    feed = stream.feed
    assert (feed.state, feed.complete, feed.unindexed) == ("live", False, "group_kind")
    assert feed.reason == "none of its blocks is indexed: group_kind"
    stream.send(stored(2, 3, group=0, group_kind="full_attention"))
    assert (feed.state, feed.complete, feed.unindexed) == ("live", not late, "")
    assert not feed.reason.startswith("none")
    stream.send(stored(2, group=1, group_kind="sliding_window"))
    assert feed.complete == (not late)


def test_nothing_but_odd_blocks() -> None:
    """The worker holds them: that others can be indexed does not make all known."""
    stream = Stream(block_size=16)
    stream.send(odd(hashes=(1,)))
    assert stream.feed.reason == "none of its blocks is indexed: length"
    stream.send(stored(7))
    assert stream.feed.reason == "not all blocks are indexed"
    assert not stream.feed.complete


def test_nothing_but_ends_of_prompts() -> None:
    """Nothing is missed without them."""
    stream = Stream(block_size=16)
    stream.send(stored(1, size=8), stored(2, size=9))
    assert (stream.feed.complete, stream.feed.unindexed) == (True, "")


def odd(**fields: object) -> BlockStored:
    """A store that is not as it should be."""
    return msgspec.structs.replace(stored(1, 2), **fields)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (odd(token_ids=stored(1, 2, 3, 4, 5).token_ids), "length"),
        (odd(hashes=(1,)), "length"),
        (odd(hashes=()), "length"),
        (odd(token_ids=b""), "no_tokens"),
        (odd(block_size=0), "no_tokens"),
        (odd(block_size=-16), "no_tokens"),
        (odd(block_size=2**62), "length"),
    ],
)
def test_events_that_cannot_be_sliced(event: BlockStored, reason: str) -> None:
    """Rejected with a reason, index unchanged."""
    stream = Stream(block_size=16)
    stream.send(event)
    assert stream.feed.counters.rejected == {reason: 1}
    assert stream.owner.blocks == 0
    assert not stream.feed.complete  # the worker holds what the index does not


def test_blocks_of_another_size_leave_the_index_incomplete() -> None:
    """The worker holds them; an end of a prompt alone is no block to hold."""
    stream = Stream(block_size=16)
    stream.send(stored(1, 2), stored(3, parent=2, size=8))
    assert stream.feed.complete
    stream.send(stored(4, 5, size=32))
    assert (stream.feed.state, stream.feed.complete) == ("live", False)
    assert stream.feed.counters.rejected == {"tail": 1, "block_size": 1}


def test_block_size_comes_from_the_events() -> None:
    """Where none was known before."""
    stream = Stream()
    stream.send(stored(1, size=32))
    assert stream.feed.block_size == 32
    assert stream.held(1, size=32) == 1
    assert stream.changes == 2


def test_single_events_of_another_size_are_rejected() -> None:
    """Partial blocks."""
    stream = Stream(block_size=32)
    stream.send(stored(1, size=32))
    for block in range(10):
        stream.send(stored(50 + block, size=16))
        stream.send(stored(60 + block, size=32))
    assert stream.feed.counters.rejected == {"tail": 10}
    assert stream.feed.block_size == 32


def test_a_size_that_keeps_coming_is_the_block_size() -> None:
    """What was said before, or held before, is dropped."""
    stream = Stream(block_size=32)
    stream.send(stored(1, size=32))
    for block in range(3):
        stream.send(stored(50 + block, size=64))
        assert stream.feed.block_size == 32
    stream.send(stored(1, size=48))
    for block in range(4):
        stream.send(stored(50 + block, size=64))
    assert stream.feed.block_size == 64
    assert (stream.held(53, size=64), stream.owner.blocks) == (1, 1)
    assert not stream.feed.complete
    while stream.indexes.sweep(100):
        pass
    assert stream.indexes.get(MODEL, 32).blocks == 0


def test_a_size_told_later_is_ignored_once_blocks_are_held() -> None:
    """Events know better than pages of metrics."""
    stream = Stream(block_size=16)
    stream.feed.use_block_size(32)
    assert stream.feed.block_size == 32
    stream.send(stored(1, size=32))
    stream.feed.use_block_size(16)
    assert stream.feed.block_size == 32
    assert stream.held(1, size=32) == 1


def test_changes_of_the_block_size_are_bounded() -> None:
    """Each makes an index: a stream that never decides is rejected at last."""
    stream = Stream(block_size=16)
    for size in range(17, 17 + RESIZES + 10):
        for block in range(RESIZE_AFTER):
            stream.send(stored(block, size=size))
    assert stream.feed.block_size == 16 + RESIZES
    assert len(stream.indexes.all) == 1 + RESIZES
