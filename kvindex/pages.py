"""Small pages collected to blocks of at least 16 tokens.

Engines may cut their cache into pages of a few tokens, down to one. Indexed as they are
they would cost more memory than they tell, so a block of the index is a run of pages,
cut from the start of the prompt: 16 tokens where the page size divides 16, else the
least multiple of the page above. A block is held in a medium while all its pages are,
and out of doubt once all its pages were stored there since the doubt began.

A page has an own hash too, chained like a block's with its size, by which the engine's
names are kept (`holder.py`). Not here: those names.
"""

import sys
from collections.abc import Mapping, Sequence

from msgspec import Struct, msgpack
from xxhash import xxh3_64_intdigest

from kvindex.blocks import ID_BYTES
from kvindex.index import PrefixIndex
from kvindex.owner import HOLDING_BYTES, Owner
from kvindex.salts import Salts
from kvindex.sharded import ShardedDict

MINIMUM = 16
"""Tokens; pages below are collected."""
PAGE_BYTES = 756
"""Memory of one page: its record and the engine's name for it."""

_SPARE_PAGES = 65_536
_GPU, _OTHER = 1, 2


def indexed_size(page_size: int) -> int:
    """Tokens of an index block for a worker with pages (or blocks) of this size."""
    return page_size * -(-MINIMUM // page_size)


class _Page(Struct, gc=False):
    """One page: the own hashes of the pages before it in its block, and their ids.

    `block` is the own hash of the block that it completes, if it does, `start` that of
    the block before. `token_ids` and `media` reach back to there; `media_bytes` is the
    memory of its own media key. `stored` are the media it was stored in during the
    owner's doubt of that number. There may be a million, which the garbage collector
    would walk for long: they are in no cycle.
    """

    own: int
    start: int
    path: tuple[int, ...]
    token_ids: bytes
    media: tuple[bytes, ...]
    block: int | None = None
    held: int = 0
    doubt: int = 0
    stored: int = 0
    media_bytes: int = 0


class PageShelf:
    """Pages in, index changes out: the `Shelf` of an engine with small pages.

    `_pages` are those held in any medium. `_blocks_of` leads from a page to the blocks
    it is part of, and `_path_of` from these to their pages, as long as the page that
    completes one is held.
    """

    def __init__(self, index: PrefixIndex, owner: Owner, page_size: int) -> None:
        self.index = index
        self.owner = owner
        self.salts = Salts()
        self._page_bytes = page_size * ID_BYTES
        self._block_bytes = index.block_size * ID_BYTES
        self.names_per_block = index.block_size // page_size
        self.name_bytes = PAGE_BYTES
        self._start()

    def _start(self) -> None:
        self._pages: ShardedDict[int, _Page] = ShardedDict()
        self._blocks_of: ShardedDict[int, dict[int, None]] = ShardedDict()
        self._path_of: ShardedDict[int, tuple[int, ...]] = ShardedDict()
        self._prepared: dict[int, _Page] = {}
        self.media_bytes = 0

    def prepare(
        self,
        parent: int,
        own: Sequence[int],
        token_ids: bytes,
        media: Mapping[int, bytes],
    ) -> None:
        """Say what the pages of the next `store_run` are made of."""
        self._prepared = {}
        start, previous = _goes_on(parent, self._pages.get(parent))
        for position, page_hash in enumerate(own):
            page = self._pages.get(page_hash)
            if page is None:
                at = position * self._page_bytes
                part = token_ids[at : at + self._page_bytes]
                page = _page(page_hash, start, previous, part, media.get(position))
                if len(page.token_ids) == self._block_bytes:
                    page.block = _block_hash(page)
            self._prepared[page_hash] = page
            start, previous = _goes_on(start, page)

    def store_run(self, own: Sequence[int], *, on_gpu: bool) -> tuple[int, list[int]]:
        """Note consecutive pages, up to the first that is refused."""
        medium = _GPU if on_gpu else _OTHER
        again: list[int] = []
        for position, page_hash in enumerate(own):
            page = self._prepared.get(page_hash) or self._pages.get(page_hash)
            if page is None:  # of a block that was dropped
                return position, again
            had = page.held & medium
            if not self._enter(page, medium):
                return position, again
            if had:
                again.append(page_hash)
        return len(own), again

    def _enter(self, page: _Page, medium: int) -> bool:
        """Hold a page in a medium; False, and nothing changed, where it is refused."""
        if not page.held:
            whole = self.names_per_block * self.owner.blocks
            if len(self._pages) > whole + _SPARE_PAGES:
                self.index.refused += 1
                return False
            self._pages[page.own] = page
            self.media_bytes += page.media_bytes
            if page.block is not None:
                self._path_of[page.block] = page.path
                for part in page.path:
                    blocks = self._blocks_of.get(part)
                    if blocks is None:
                        blocks = self._blocks_of[part] = {}
                    blocks[page.block] = None
        had, page.held = page.held, page.held | medium
        known = page.stored if page.doubt == self.owner.doubts else 0
        page.stored, page.doubt = known | medium, self.owner.doubts
        for block in self._blocks_of.get(page.own) or ():
            whole = all(self._held(part) & medium for part in self._path_of[block])
            if whole and not self._store(block, medium):
                self._take_out(page, page.held & ~had)
                return False
        return True

    def _store(self, block: int, medium: int) -> bool:
        """Index a block whose pages are held; it is in doubt while one of them is."""
        owner = self.owner
        sure = owner.blocks - owner.suspect_blocks
        if not self.index.store(owner, block, on_gpu=medium == _GPU):
            return False
        if owner.blocks - owner.suspect_blocks > sure and not all(
            self._known(part) & medium for part in self._path_of[block]
        ):
            self.index.redoubt(owner, block)
        return True

    def _held(self, page_hash: int) -> int:
        page = self._pages.get(page_hash)
        return page.held if page else 0

    def _known(self, page_hash: int) -> int:
        """In which media the page was stored since all was put in doubt."""
        page = self._pages.get(page_hash)
        return page.stored if page and page.doubt == self.owner.doubts else 0

    def remove(self, own: int, *, on_gpu: bool) -> None:
        """The page is gone from this medium, and each block it was part of."""
        page = self._pages.get(own)
        if page is not None:
            self._take_out(page, page.held & (_GPU if on_gpu else _OTHER))

    def _take_out(self, page: _Page, medium: int) -> None:
        """Hold a page in this medium no more; no medium is nothing to do."""
        if not medium:
            return
        page.held &= ~medium
        page.stored &= ~medium
        for block in self._blocks_of.get(page.own) or ():
            self.index.remove(self.owner, block, on_gpu=medium == _GPU)
        if page.held:
            return
        self._pages.pop(page.own)
        self.media_bytes -= page.media_bytes
        self.salts.gone(page.own)
        if page.block is not None:
            self._path_of.pop(page.block)
            for part in page.path:
                blocks = self._blocks_of[part]
                del blocks[page.block]
                if not blocks:
                    self._blocks_of.pop(part)

    def drop_suspect(self, own: int, *, on_gpu: bool) -> bool:
        """Drop a page that is in doubt, unless a block it is part of is not.

        One that is known in the other medium is gone from this one only.
        """
        page, known = self._pages.get(own), self._known(own)
        medium = _GPU if on_gpu else _OTHER
        if not self.owner.fresh or known & medium:
            return False
        blocks = self._blocks_of.get(own) or ()
        if known or page is None:
            self.remove(own, on_gpu=on_gpu)
            return True
        dropped = [self.index.drop_suspect(self.owner, block) for block in blocks]
        if not all(dropped):
            page.stored, page.doubt = page.held, self.owner.doubts
            return False
        self._take_out(page, page.held & _GPU)
        self._take_out(page, page.held & _OTHER)
        return True

    def redoubt(self, own: int) -> None:
        """The page is in doubt again, and each block that it is part of."""
        if (page := self._pages.get(own)) is not None:
            page.stored = 0
        for block in self._blocks_of.get(own) or ():
            self.index.redoubt(self.owner, block)

    def clear(self) -> None:
        """Nothing is held any more."""
        self._discard()
        self.index.clear(self.owner)

    def retire(self) -> None:
        """The owner is gone."""
        self._discard()
        self.index.retire(self.owner)

    def _discard(self) -> None:
        waste = self.index.waste
        self.salts.clear(waste)
        waste.add(*self._pages.shards, *self._blocks_of.shards, *self._path_of.shards)
        waste.add(self._prepared)
        self._start()


def _page(
    own: int,
    start: int,
    previous: _Page | None,
    token_ids: bytes,
    media: bytes | None,
) -> _Page:
    path: tuple[int, ...] = (own,)
    keys = (media,) if media else ()
    if previous is not None:
        path, token_ids = (*previous.path, own), previous.token_ids + token_ids
        keys = (*previous.media, *keys)
    media_bytes = sys.getsizeof(media) if media else 0
    return _Page(own, start, path, token_ids, keys, media_bytes=media_bytes)


def _goes_on(start: int, page: _Page | None) -> tuple[int, _Page | None]:
    """(own hash of the block before, page before) of what follows `page`."""
    if page is None:
        return start, None
    return (page.start, page) if page.block is None else (page.block, None)


def _block_hash(page: _Page) -> int:
    """As `blocks.chain` has it; the extra key joins those of the pages."""
    media = [item for key in page.media for item in msgpack.decode(key)]
    extra = msgpack.encode(media) if media else b""
    return xxh3_64_intdigest(page.token_ids + extra, page.start)


def holding_bytes(page_size: int) -> int:
    """Memory of one index block at an owner with pages of this size."""
    return HOLDING_BYTES + indexed_size(page_size) // page_size * PAGE_BYTES
