"""What a feed's events are about: which of them count, and in which index they land.

Learns the block size, refuses what cannot be indexed, hands the rest to the `Holder`.
Not here: sequence numbers and states (`feed.py`).
"""

import logging
from collections.abc import Callable, Generator, Hashable, Iterator

from msgspec import structs

from kvindex.counters import Counters, count
from kvindex.engine_blocks import NO_TOKENS, key_of, on_gpu, refusal
from kvindex.events import BlockRemoved, BlockStored, BlockUpdated, CacheCreated
from kvindex.holder import Holder
from kvindex.index import Indexes
from kvindex.shelf import shelf_for

log = logging.getLogger(__name__)

Work = Iterator[int]
"""Steps of work, each with the number of blocks it was about."""

SLICE = 512
"""Blocks of one step: about a millisecond."""
REMOVED = 256
"""Those of a removal: in a doubt each takes several times as long."""

RESIZE_AFTER = 4
"""So many stores to the GPU in a row of one other block size mean that it has changed.
Tiers behind it may have larger chunks at any time."""

CACHE_BLOCKS = 1 << 20
"""No cache has more blocks, whatever it says: histories are sized by it."""

TAIL = "tail"
"""Why the end of a prompt is left out that fills no block: nothing is missed by it."""

RESIZES = 64
"""How often one feed's block size may change: each size has an index of its own."""


NO_KEYS = "no_keys"
"""Why a tier's unknown blocks are refused: they may be salted, or of an image, and it
does not say so."""

LOOKAHEAD = 256
"""No engine drafts more tokens at once: dozens at most."""

SALTS_UNTOLD = "its events tell no salts: salted blocks look like others"


class Intake:
    """The events of one owner; `holder` is None until the block size is known.

    `touched` since the cache was last empty? `cache_blocks` is the cache's size in all
    media, where the worker's events tell it. `complete` is the caller's: whether all
    that the worker holds was told.
    """

    def __init__(
        self,
        *,
        model: str,
        indexes: Indexes,
        key: Hashable,
        counters: Counters,
        orphan_blocks: int,
        on_gone: Callable[[int], None] | None,
    ) -> None:
        self.holder: Holder | None = None
        self._model = model
        self._indexes = indexes
        self._key = key
        self._counters = counters
        self._orphan_blocks = orphan_blocks
        self._on_gone = on_gone
        self.touched = self.complete = False
        self.cache_blocks: int | None = None
        self._left_out = self._sure = self._of_tier = self._taken = False
        self._tells_salts, self._tells_keys = True, False
        self._refused = ""
        """Why the last event was that could not be indexed, since the cache was empty;
        `_taken`: another could."""
        self._ended: Holder | BlockStored | None = None
        """What refused the rest of the chain that is being stored."""
        self._window = 0
        self._other_size = 0
        self._other_times = 0
        self._resizes = 0

    def created(self, event: CacheCreated) -> None:
        """The cache is new; of several attention windows the widest counts."""
        window, blocks = event.window or 0, sum(event.blocks_per_level)
        if window >= self._window and blocks > 0:
            self.cache_blocks = min(blocks, CACHE_BLOCKS)
        self._window = max(self._window, window)

    @property
    def lacks(self) -> str:
        """What is not known of the blocks that the worker holds; "" if nothing."""
        if self._left_out or (self.holder is not None and self.holder.incomplete):
            return "not all blocks are indexed"
        return "" if self._tells_salts else SALTS_UNTOLD

    @property
    def unindexed(self) -> str:
        """Why no event could be indexed since the cache was empty; "" where one was."""
        return "" if self._taken else self._refused

    def apply(
        self, event: BlockStored | BlockRemoved | BlockUpdated, *, goes_on: bool = False
    ) -> Work:
        """Let one event change the index, in steps of `SLICE` blocks.

        `goes_on`: it is more of the chain that the last one stored.
        """
        self.touched = True
        if not self._is_widest(event.window):
            if isinstance(event, BlockStored):
                self._refuse("window")
        elif isinstance(event, BlockStored):
            yield from self._stored(event, goes_on)
        elif self.holder is not None and isinstance(event, BlockUpdated):
            self.holder.moved(event)
            yield 1
        elif self.holder is not None and isinstance(event, BlockRemoved):
            for start in range(0, len(event.hashes), REMOVED):
                part = event
                if len(event.hashes) > REMOVED:
                    hashes = event.hashes[start : start + REMOVED]
                    part = structs.replace(event, hashes=hashes)
                self.holder.removed(part)
                yield len(part.hashes)

    def _is_widest(self, window: int | None) -> bool:
        """Does this attention window count? A group of narrower ones drops early what
        a hit needs no more, so a match by it would be wrong."""
        if not window or window < 1 or window == self._window:
            return True
        if window < self._window:
            return False
        if self._window and self.holder is not None:  # what is held is of narrower ones
            self.holder.clear()
            self.holder.incomplete = True
        self._window = window
        return True

    def _stored(self, event: BlockStored, goes_on: bool) -> Work:
        if goes_on and self._ended:
            if self._ended is self.holder:
                self.holder.refuse(len(event.hashes))
            return
        self._ended = None
        self._tells_salts = self._tells_salts and event.tells_salt
        reason, keyless = refusal(event), self._is_keyless(event)
        by_name = keyless if reason is None else reason == NO_TOKENS
        if by_name:
            if (yield from self._stored_by_name(event)):
                return
            reason = reason or NO_KEYS
        longest = max([len(ids or ()) for ids in event.lookahead or ()], default=0)
        if longest > LOOKAHEAD:
            reason = reason or "lookahead"
        holder = None if reason else self._holder_for(event)
        if holder is None:
            self._refuse(reason or self._misfit(event))
            # Groups that do not count are no part of what is to be indexed.
            self._left_out = self._left_out or reason not in (None, "group_kind")
            self._ended = event
            return
        holder.shelf.index.look_ahead(holder.shelf.owner, longest)
        yield from self._store(holder, event)

    def _store(self, holder: Holder, event: BlockStored) -> Work:
        self._taken, left = True, len(event.hashes)
        for part in event.parts(SLICE):
            whole = holder.stored(part, complete=self.complete)
            left -= len(part.hashes)
            yield len(part.hashes)
            yield from self.adopt()
            if not whole or self.holder is not holder:
                holder.refuse(left)
                self._ended = holder
                return

    def _is_keyless(self, event: BlockStored) -> bool:
        """Does a tier leave out the keys that the GPU's events tell of their blocks?"""
        if on_gpu(key_of(event)):
            self._tells_keys = self._tells_keys or event.extra_keys is not None
            return False
        return self._tells_keys and event.extra_keys is None

    def _stored_by_name(self, event: BlockStored) -> Generator[int, None, bool]:
        """Store what is known by its name; is that all of it?"""
        if self.holder is None or not event.hashes:
            return False
        known = [True]
        for part in event.parts(SLICE):
            known.append(self.holder.by_name.stored(part))
            yield len(part.hashes)
        return all(known)

    def _refuse(self, reason: str) -> None:
        count(self._counters.rejected, reason)
        if reason != TAIL:
            self._refused = reason

    def _misfit(self, event: BlockStored) -> str:
        return TAIL if self._may_be_tail(event) else "block_size"

    def _may_be_tail(self, event: BlockStored) -> bool:
        """A smaller block that comes alone may always be the end of a prompt."""
        page_size = self.holder.page_size if self.holder is not None else 0
        return event.block_size < page_size and len(event.hashes) == 1

    def adopt(self) -> Work:
        """Index the orphans below blocks that have arrived, in steps."""
        while (holder := self.holder) is not None and holder.adoption.waits:
            yield holder.adoption.work(SLICE)

    def _holder_for(self, event: BlockStored) -> Holder | None:
        """The holder, if this is its block size: if none was known, or after a while.

        Single events of another size are partial blocks. What another tier says counts
        only until the GPU is heard of.
        """
        size, alone = event.block_size, len(event.hashes) == 1
        tier, holder = not on_gpu(key_of(event)), self.holder
        if holder is None:
            self._sure, self._of_tier = not (alone or tier), tier
            return self._use(size)
        if size == holder.page_size:
            self._sure = self._sure or not (alone or tier)
            self._of_tier = self._of_tier and tier
            self._other_times = self._other_times if tier else 0
            return holder
        if self._of_tier and not tier:
            self._sure, self._of_tier = not alone, False
            return self._use(size)
        if self._may_be_tail(event):
            return None
        holder.incomplete = True
        return None if tier else self._resized(size)

    def _resized(self, size: int) -> Holder | None:
        """The holder of another block size, if it has come often enough."""
        if self.holder is not None and self.holder.page_size < size and not self._sure:
            return self._use(size)
        self._other_times = self._other_times + 1 if size == self._other_size else 1
        self._other_size = size
        if self._other_times < RESIZE_AFTER or self._resizes >= RESIZES:
            return None
        self._resizes += 1
        log.warning("KV events of %s: block size is now %d", self._key, size)
        return self._use(size)

    def use_block_size(self, size: int) -> None:
        """The worker says that its blocks have `size` tokens."""
        self._sure, self._of_tier = True, False
        self._use(size)

    def _use(self, size: int) -> Holder:
        """Index blocks of `size` tokens from now on; those of another are dropped."""
        changed = self.holder is not None
        self.retire()
        shelf = shelf_for(self._indexes, self._model, self._key, size, self._on_gone)
        self.holder = Holder(
            model=self._model,
            page_size=size,
            shelf=shelf,
            counters=self._counters,
            orphan_blocks=self._orphan_blocks,
        )
        self.holder.incomplete = changed
        self._other_times = 0
        return self.holder

    def clear(self) -> None:
        """The worker's cache is empty."""
        self.touched, self._window, self._left_out = False, 0, False
        self._tells_salts = True
        self._taken, self._refused = False, ""
        if self.holder is not None:
            self.holder.clear()

    def retire(self) -> None:
        """The worker is gone, or its blocks are of another size."""
        if self.holder is not None:
            self.holder.retire()
