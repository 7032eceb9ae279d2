"""The prefix index: matching, bounds, doubt; case by case."""

import pytest

from kvindex import prefix_index as index_module
from kvindex.index import Indexes, PrefixIndex
from kvindex.owner import BLOCK_BYTES, HOLDING_BYTES, Held

HASHES = [1000 + 7919 * i for i in range(2048)]


def index_of(limit_blocks: int = 1_000_000) -> PrefixIndex:
    """An index of blocks of 16."""
    return PrefixIndex(block_size=16, limit_blocks=limit_blocks)


def test_match_finds_each_owners_prefix() -> None:
    """Sixteen owners with different lengths, some with none."""
    index = index_of()
    owners = [index.add_owner(i) for i in range(16)]
    lengths = [0, 1, 2, 2048, 2047, 1024, 1023, 1025, 5, 5, 700, 0, 3, 2048, 64, 1]
    for owner, length in zip(owners, lengths, strict=True):
        index.store_run(owner, HASHES[:length], on_gpu=True)
    found = index.match(HASHES, owners)
    assert [held.blocks for held in found] == lengths
    assert [held.gpu_blocks for held in found] == lengths
    assert index.match(HASHES[:3], owners[3:5])[1] == Held(gpu_blocks=3, blocks=3)
    assert index.match([], owners)[3].blocks == 0
    assert index.match([1, 2, 3], owners)[3].blocks == 0


def test_other_media_go_on_where_the_gpu_ends() -> None:
    """GPU, then any medium to the first hole."""
    index = index_of()
    owner = index.add_owner("w")
    index.store_run(owner, HASHES[:3], on_gpu=True)
    index.store_run(owner, HASHES[2:6], on_gpu=False)
    index.store_run(owner, HASHES[7:9], on_gpu=False)
    assert index.match(HASHES, [owner]) == [Held(gpu_blocks=3, blocks=6)]
    assert (owner.blocks, owner.gpu_blocks) == (8, 3)


def test_a_block_offloaded_and_then_evicted_is_still_held() -> None:
    """Each medium is dropped for itself."""
    index = index_of()
    owner = index.add_owner("w")
    index.store(owner, 1, on_gpu=True)
    index.store(owner, 1, on_gpu=False)
    index.remove(owner, 1, on_gpu=True)
    assert index.match([1], [owner]) == [Held(gpu_blocks=0, blocks=1)]
    index.remove(owner, 1, on_gpu=True)
    index.remove(owner, 1, on_gpu=False)
    index.remove(owner, 1, on_gpu=False)
    assert index.match([1], [owner]) == [Held()]
    assert (index.blocks, owner.blocks, owner.gpu_blocks) == (0, 0, 0)


def test_store_run_tells_what_was_held_before() -> None:
    """In this medium, by this owner."""
    index = index_of()
    a, b = index.add_owner("a"), index.add_owner("b")
    assert index.store_run(a, [1, 2], on_gpu=True) == (2, [])
    assert index.store_run(a, [1, 2, 3], on_gpu=True) == (3, [1, 2])
    assert index.store_run(a, [1], on_gpu=False) == (1, [])
    assert index.store_run(b, [1], on_gpu=True) == (1, [])
    assert (index.blocks, a.blocks, b.blocks) == (3, 3, 1)


def test_new_blocks_are_refused_at_the_bound() -> None:
    """Known blocks still get new owners; an eviction makes room."""
    index = index_of(limit_blocks=3)
    a, b = index.add_owner("a"), index.add_owner("b")
    assert index.store_run(a, [1, 2, 3, 4, 5], on_gpu=True)[0] == 3
    assert (index.blocks, index.refused) == (3, 2)
    assert index.store(b, 2, on_gpu=True)
    assert not index.store(b, 9, on_gpu=True)
    index.remove(a, 3, on_gpu=True)
    assert index.store(b, 9, on_gpu=True)
    assert (index.blocks, index.refused) == (3, 3)


def test_one_bound_over_all_indexes() -> None:
    """Bytes of blocks and holdings, of any model; never exceeded."""
    limit = 10 * (BLOCK_BYTES + HOLDING_BYTES)
    indexes = Indexes(limit_bytes=limit)
    m, n = indexes.get("m", 16), indexes.get("n", 16)
    assert indexes.get("m", 16) is m
    assert indexes.get("m", 32) is not m
    a, b = m.add_owner("a"), n.add_owner("b")
    assert m.store_run(a, HASHES[:6], on_gpu=True)[0] == 6
    assert n.store_run(b, HASHES[:6], on_gpu=True)[0] == 4
    assert m.bytes + n.bytes == indexes.memory.used_bytes == limit
    assert m.store_run(m.add_owner("c"), HASHES[:1], on_gpu=True)[0] == 0
    m.clear(a)
    while indexes.sweep(1):
        pass
    assert indexes.memory.used_bytes == 4 * (BLOCK_BYTES + HOLDING_BYTES)
    assert n.store_run(b, HASHES[:10], on_gpu=True) == (10, HASHES[:4])
    assert [index.block_size for index in indexes.all] == [16, 16, 32]


def test_clear_is_at_once_and_swept_later() -> None:
    """Old bits mean nothing from the moment on; new stores survive the sweep."""
    index = index_of()
    a, b = index.add_owner("a"), index.add_owner("b")
    index.store_run(a, HASHES[:100], on_gpu=True)
    index.store_run(b, HASHES[:50], on_gpu=True)
    index.clear(a)
    assert index.match(HASHES, [a, b]) == [Held(), Held(gpu_blocks=50, blocks=50)]
    assert (a.blocks, a.gpu_blocks, index.blocks) == (0, 0, 100)
    index.store_run(a, HASHES[:7], on_gpu=True)
    while index.sweep(10):
        pass
    assert index.match(HASHES, [a, b])[0] == Held(gpu_blocks=7, blocks=7)
    assert (a.blocks, index.blocks) == (7, 50)


def test_a_retired_owner_takes_nothing_more() -> None:
    """Late events of a worker that is gone change nothing."""
    index = index_of()
    owner = index.add_owner("a")
    index.store_run(owner, HASHES[:5], on_gpu=True)
    index.retire(owner)
    assert index.store_run(owner, HASHES[:5], on_gpu=True) == (0, [])
    index.remove(owner, HASHES[0], on_gpu=True)
    assert index.match(HASHES, [owner]) == [Held()]
    while index.sweep(100):
        pass
    assert (index.blocks, index.bytes) == (0, 0)


def test_suspects_are_listed_until_stored_again_or_confirmed() -> None:
    """Held and not fresh."""
    index = index_of()
    owner = index.add_owner("a")
    index.store_run(owner, HASHES[:6], on_gpu=True)
    index.suspect(owner)
    assert owner.suspect_blocks == 6
    assert index.store_run(owner, HASHES[:2], on_gpu=True) == (2, HASHES[:2])
    index.confirm(owner, [HASHES[3], HASHES[3], 5])
    index.store_run(owner, HASHES[6:7], on_gpu=True)
    held = index.match(HASHES, [owner])[0]
    assert held == Held(gpu_blocks=7, blocks=7, suspects=(2, 4, 5))
    assert held.suspect_blocks == owner.suspect_blocks == 3
    index.suspect(owner)
    assert index.match(HASHES, [owner])[0].suspects == tuple(range(7))
    index.trust(owner)
    assert index.match(HASHES, [owner])[0].suspects == ()
    assert owner.suspect_blocks == 0


def test_settling_hides_suspects_at_once() -> None:
    """What is not dropped yet no longer matches."""
    index = index_of()
    owner = index.add_owner("a")
    index.store_run(owner, HASHES[:6], on_gpu=True)
    index.store_run(owner, HASHES[:6], on_gpu=False)
    index.suspect(owner)
    index.confirm(owner, HASHES[:3])
    index.settle(owner)
    assert index.match(HASHES, [owner])[0] == Held(gpu_blocks=3, blocks=3)
    assert not index.drop_suspect(owner, HASHES[0])
    assert index.drop_suspect(owner, HASHES[4])
    assert index.drop_suspect(owner, HASHES[4])
    assert index.drop_suspect(owner, HASHES[3])
    assert index.drop_suspect(owner, HASHES[5])
    assert (owner.blocks, owner.gpu_blocks, owner.suspect_blocks) == (3, 3, 0)
    index.trust(owner)
    assert not index.drop_suspect(owner, HASHES[0])
    assert index.match(HASHES, [owner])[0] == Held(gpu_blocks=3, blocks=3)


def test_removing_a_suspect_settles_it() -> None:
    """The count of suspects follows."""
    index = index_of()
    owner = index.add_owner("a")
    index.store_run(owner, [1, 2], on_gpu=True)
    index.suspect(owner)
    index.confirm(owner, [1])
    index.remove(owner, 1, on_gpu=True)
    index.remove(owner, 2, on_gpu=True)
    assert (owner.suspect_blocks, index.blocks) == (0, 0)


def test_a_sampled_match_counts_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bisection steps over a hole; the sampled walk sees it and stops there."""
    monkeypatch.setattr(index_module, "SAMPLE", 2)
    index = index_of()
    owner = index.add_owner("a")
    index.store_run(owner, HASHES[:9], on_gpu=True)
    index.remove(owner, HASHES[2], on_gpu=True)
    assert index.match(HASHES[:9], [owner])[0].gpu_blocks == 9
    assert owner.holes == 0
    assert index.match(HASHES[:9], [owner])[0].gpu_blocks == 2
    assert owner.holes == 1
    index.store(owner, HASHES[2], on_gpu=True)
    for _ in range(4):
        assert index.match(HASHES[:9], [owner])[0].gpu_blocks == 9
    assert owner.holes == 1


def test_doubt_upon_doubt_uses_no_more_bits() -> None:
    """Gap after gap: a bit is taken anew only where blocks carry the last one."""
    index = index_of()
    owner = index.add_owner("a")
    index.store_run(owner, HASHES[:3], on_gpu=True)
    for _ in range(1000):
        index.suspect(owner)
    assert owner.fresh < 1 << 8
    for _ in range(1000):
        index.trust(owner)
        index.suspect(owner)
    assert owner.fresh < 1 << 8
    assert owner.suspect_blocks == 3
