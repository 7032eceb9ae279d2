"""KV cache groups: what each says of the same blocks."""

from kvindex.blocks import pack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    KVEvent,
)
from simworker.groups import Groups

STORED = BlockStored(
    hashes=(1, 2, 3),
    token_ids=pack_ids(range(12)),
    block_size=4,
    extra_keys=(None, ("a",), None),
    group_kind="full_attention",
)


def test_a_window_that_masks() -> None:
    """vLLM: the last blocks' hashes, and the ids of the whole span."""
    full, windowed = Groups((5,), full=None, masks=True).repeated([STORED])
    assert isinstance(full, BlockStored)
    assert isinstance(windowed, BlockStored)
    assert (full.hashes, full.group, full.group_kind) == (
        (1, 2, 3), 0, "full_attention",
    )  # fmt: skip
    assert (windowed.hashes, windowed.group) == ((2, 3), 1)
    assert (windowed.group_kind, windowed.window) == ("sliding_window", 5)
    assert windowed.token_ids == STORED.token_ids
    assert windowed.extra_keys == (("a",), None)


def test_a_window_that_does_not() -> None:
    """TensorRT-LLM: just these blocks, behind the one before them."""
    full, windowed = Groups((4,), full=64, masks=False).repeated([STORED])
    assert isinstance(full, BlockStored)
    assert isinstance(windowed, BlockStored)
    assert (full.window, windowed.window) == (64, 4)
    assert (windowed.hashes, windowed.parent) == ((3,), 2)
    assert windowed.token_ids == pack_ids(range(8, 12))


def test_only_what_a_group_holds_is_removed_from_it() -> None:
    """Copies are counted; what moves, moves in the groups that have it."""
    groups = Groups((4,), full=None, masks=True)
    list(groups.repeated([STORED, STORED]))

    def said(event: KVEvent) -> list[KVEvent]:
        return list(groups.repeated([event]))[1:]

    assert said(BlockRemoved(hashes=(1,))) == []
    assert said(BlockUpdated(hash=1)) == []
    assert said(BlockUpdated(hash=3)) == [BlockUpdated(hash=3, group=1, window=4)]
    (removal,) = said(BlockRemoved(hashes=(2, 3)))
    assert isinstance(removal, BlockRemoved)
    assert removal.hashes == (3,)
    assert len(said(BlockRemoved(hashes=(3,)))) == 1
    assert said(BlockRemoved(hashes=(3,))) == []


def test_a_cache_that_is_empty() -> None:
    """Clearing is told once; a new cache by each group."""
    groups = Groups((4,), full=None, masks=True)
    list(groups.repeated([STORED]))
    assert list(groups.repeated([AllBlocksCleared()])) == [AllBlocksCleared()]
    assert list(groups.repeated([BlockRemoved(hashes=(3,))])) == [
        BlockRemoved(hashes=(3,), group=0)
    ]
    created = list(groups.repeated([CacheCreated(blocks_per_level=(9,))]))
    assert [event.group for event in created if isinstance(event, CacheCreated)] == [
        0, 1,
    ]  # fmt: skip
