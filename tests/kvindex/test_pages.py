"""Small pages collected to blocks: branches, removals, media, bounds."""

import pytest

from kvindex.blocks import chain, pack_ids
from kvindex.events import BlockRemoved, BlockStored, media_key
from kvindex.pages import indexed_size
from tests.kvindex.engine import CLEARED, ROOT, Stream


def page(
    ids: list[int],
    name: int,
    parent: int | None = None,
    *,
    size: int = 4,
    medium: str = "GPU",
    extra: tuple[object, ...] | None = None,
) -> BlockStored:
    """Pages with these ids, named from `name` on."""
    count = len(ids) // size
    return BlockStored(
        hashes=tuple(range(name, name + count)),
        parent=parent,
        token_ids=pack_ids(ids),
        block_size=size,
        medium=medium,
        extra_keys=(extra,) * count if extra else None,
    )


def gone(*names: int, medium: str = "GPU") -> BlockRemoved:
    """Pages removed."""
    return BlockRemoved(hashes=names, medium=medium)


def blocks_held(stream: Stream, ids: list[int], size: int = 16) -> int:
    """Leading blocks of a prompt of these ids."""
    hashes = chain(pack_ids(ids), size, ROOT)
    return stream.index.match(hashes, [stream.owner])[0].blocks


@pytest.mark.parametrize(
    ("page_size", "size"),
    [
        (1, 16),
        (2, 16),
        (4, 16),
        (8, 16),
        (3, 18),
        (12, 24),
        (15, 30),
        (16, 16),
        (64, 64),
    ],
)
def test_indexed_size(page_size: int, size: int) -> None:
    """At least 16 tokens, a multiple of the page."""
    assert indexed_size(page_size) == size
    stream = Stream(block_size=page_size)
    assert stream.feed.block_size == size


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_pages_become_blocks(size: int) -> None:
    """In one event, or page by page; a rest is no block."""
    ids = list(range(40))
    whole = Stream()
    whole.send(page(ids, 100, size=size))
    assert (whole.feed.block_size, blocks_held(whole, ids)) == (16, 2)
    assert whole.owner.gpu_blocks == 2
    single = Stream()
    parent = None
    for at in range(0, 40, size):
        single.send(page(ids[at : at + size], 100 + at, parent, size=size))
        parent = 100 + at
        assert blocks_held(single, ids) == (at + size) // 16


def test_a_branch_in_the_middle_of_a_block() -> None:
    """Two blocks share two pages; one of them gone ends both."""
    stream = Stream()
    left, right = list(range(16)), [*range(8), *range(50, 58)]
    stream.send(page(left, 1), page(right[8:], 11, parent=2))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (1, 1)
    stream.send(gone(3))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (0, 1)
    stream.send(page(left[8:12], 3, parent=2))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (1, 1)
    stream.send(gone(2))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (0, 0)
    stream.send(page(left[4:8], 2, parent=1))
    assert (blocks_held(stream, left), blocks_held(stream, right)) == (1, 1)
    stream.send(gone(12, 11, 4, 3, 2, 1))
    assert stream.owner.blocks == 0
    assert not stream.feed._intake.holder.shelf._pages  # type: ignore[union-attr]


def test_pages_removed_from_the_root_on() -> None:
    """Records of pages that are gone stay only while others point to them."""
    stream = Stream()
    ids = list(range(32))
    stream.send(page(ids, 1))
    stream.send(gone(1, 2, 3), gone(99))
    assert blocks_held(stream, ids) == 0
    stream.send(gone(4, 5, 6, 7, 8))
    assert stream.owner.blocks == 0
    assert not stream.feed._intake.holder.shelf._pages  # type: ignore[union-attr]


def test_each_medium_for_itself() -> None:
    """A block is on GPU while all its pages are."""
    stream = Stream()
    ids = list(range(16))
    stream.send(page(ids, 1), page(ids, 1, medium="CPU"))
    assert (stream.owner.blocks, stream.owner.gpu_blocks) == (1, 1)
    stream.send(gone(2))
    assert (blocks_held(stream, ids), stream.owner.gpu_blocks) == (1, 0)
    stream.send(gone(4, medium="CPU"))
    assert blocks_held(stream, ids) == 0


def test_media_keys_of_pages_join() -> None:
    """The block's key lists those of its pages."""
    stream = Stream()
    ids = list(range(16))
    stream.send(page(ids, 1, extra=(["img", 2],)))
    hashes = chain(pack_ids(ids), 16, ROOT, {0: media_key([["img", 2]] * 4)})
    assert stream.index.match(hashes, [stream.owner])[0].blocks == 1
    assert blocks_held(stream, ids) == 0


def test_orphan_pages_find_their_parent() -> None:
    """As blocks do."""
    stream = Stream()
    ids = list(range(16))
    stream.send(page(ids[8:], 3, parent=2))
    stream.send(page(ids[:8], 1))
    assert blocks_held(stream, ids) == 1


def test_clearing_pages() -> None:
    """All of them."""
    stream = Stream()
    stream.send(page(list(range(32)), 1), CLEARED, page(list(range(16)), 1))
    assert blocks_held(stream, list(range(32))) == 1


def test_a_page_that_comes_back_below_others() -> None:
    """Removed and stored again before its block was complete."""
    stream = Stream()
    ids = list(range(16))
    stream.send(page(ids[:8], 1))
    stream.send(gone(1), page(ids[:4], 1))
    stream.send(page(ids[8:], 3, parent=2))
    assert blocks_held(stream, ids) == 1


def test_two_pages_under_one_name() -> None:
    """One name for two contents, again and again: nothing breaks."""
    stream = Stream()
    event = BlockStored(hashes=(1, 1, 1, 1), token_ids=pack_ids([0] * 16), block_size=4)
    held = []
    for each in (event, event, gone(1), event):
        stream.send(each)
        held.append(blocks_held(stream, [0] * 16))
    assert held == [1, 1, 0, 1]
