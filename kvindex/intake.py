"""What a feed's events are about: which of them count, and in which index they land.

Learns the block size, refuses what cannot be indexed, hands the rest to the `Holder`.
Not here: sequence numbers and states (`feed.py`).
"""

import logging
from collections.abc import Callable, Hashable

from kvindex.counters import Counters, count
from kvindex.engine_blocks import refusal
from kvindex.events import BlockRemoved, BlockStored
from kvindex.holder import Holder
from kvindex.index import Indexes
from kvindex.shelf import shelf_for

log = logging.getLogger(__name__)

RESIZE_AFTER = 4
"""So many stores in a row of one other block size mean that it has changed."""

RESIZES = 64
"""How often one feed's block size may change: each size has an index of its own."""


class Intake:
    """The events of one owner; `holder` is None until the block size is known."""

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
        self._other_size = 0
        self._other_times = 0
        self._resizes = 0

    @property
    def incomplete(self) -> bool:
        """Were blocks left out that the worker holds?"""
        return self.holder is not None and self.holder.incomplete

    def apply(self, event: BlockStored | BlockRemoved) -> None:
        """Let one event change the index."""
        if isinstance(event, BlockRemoved):
            if self.holder is not None:
                self.holder.removed(event)
            return
        reason = refusal(event)
        holder = self._holder_for(event.block_size) if reason is None else None
        if holder is None:
            count(self._counters.rejected, reason or "block_size")
        else:
            holder.stored(event)

    def _holder_for(self, size: int) -> Holder | None:
        """The holder, if this is its block size: if none was known, or after a while.

        Single events of another size are partial blocks or those of another tier.
        """
        if self.holder is None:
            return self.use_block_size(size)
        if self.holder.page_size == size:
            self._other_times = 0
            return self.holder
        self._other_times = self._other_times + 1 if size == self._other_size else 1
        self._other_size = size
        if self._other_times < RESIZE_AFTER or self._resizes >= RESIZES:
            return None
        self._resizes += 1
        log.warning("KV events of %s: block size is now %d", self._key, size)
        return self.use_block_size(size)

    def use_block_size(self, size: int) -> Holder:
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
        if self.holder is not None:
            self.holder.clear()

    def retire(self) -> None:
        """The worker is gone, or its blocks are of another size."""
        if self.holder is not None:
            self.holder.retire()
