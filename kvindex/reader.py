"""What the events of one batch do to a feed, in slices.

Each step is a generator of the blocks it has worked on, so that a large batch need not
be applied at once. Not here: which batch is next (`following.py`).
"""

import logging
from collections.abc import Callable, Hashable

import msgspec

from kvindex.counters import Counters, count
from kvindex.doubt import Doubt
from kvindex.events import (
    AllBlocksCleared,
    BlockStored,
    CacheCreated,
    EventBatch,
    KVEvent,
    UndecodableBatch,
)
from kvindex.intake import Intake, Work
from kvindex.standing import Standing
from kvindex.wire.cutting import PIECE_BYTES, Piece, cut

log = logging.getLogger(__name__)


NONE_INDEXED = "none of its blocks is indexed"

_BYTES_PER_BLOCK = 128
"""To decode so much takes as long as to apply a block."""


class Reader:
    """Decodes batches and lets their events change the index."""

    def __init__(
        self,
        *,
        key: Hashable,
        decode: Callable[[bytes], EventBatch],
        standing: Standing,
        intake: Intake,
        doubt: Doubt,
        counters: Counters,
        emptied: Callable[[], None],
        resized: Callable[[], None],
    ) -> None:
        """`emptied` is called when the worker's cache is empty, `resized` when the
        size of its blocks or its cache has become known, or another."""
        self._key = key
        self._decode = decode
        self._standing = standing
        self._intake = intake
        self._doubt = doubt
        self._counters = counters
        self._emptied = emptied
        self._resized = resized
        self.created = False
        """Was the last event that the cache was created?"""
        self._before = "", False
        """Reason and completeness when nothing turned out to be indexed."""

    def read(self, payload: bytes | memoryview) -> Work:
        """Apply one batch. Bad input is counted, never raised."""
        holder = self._intake.holder
        for piece in cut(payload):
            if piece is None:
                yield PIECE_BYTES // _BYTES_PER_BLOCK
            else:
                yield from self._read(piece)
        self._judge()
        if holder is not self._intake.holder:
            self._resized()

    def _judge(self) -> None:
        """Is all known that the worker holds? Where nothing is indexed, until it is.

        Groups of layers that do not count may be told of before the one that does.
        """
        standing, why = self._standing, self._intake.unindexed
        said = standing.reason.startswith(NONE_INDEXED)
        if why:
            if not said:
                self._before = standing.reason, standing.complete
            standing.incomplete(f"{NONE_INDEXED}: {why}")
            return
        if said:
            reason, complete = self._before
            standing.become(standing.state, reason, complete=complete)
        if lacks := self._intake.lacks:
            standing.incomplete(lacks)

    def _read(self, piece: Piece) -> Work:
        try:
            batch = self._decode(piece.payload)
        except UndecodableBatch:
            self.undecodable("batch")
            return
        yield len(piece.payload) // _BYTES_PER_BLOCK
        for reason in batch.undecodable:
            self.undecodable(reason)
        for event in batch.events:
            self._intake.complete = self._standing.complete
            if not piece.goes_on:
                count(self._counters.events, type(event).__name__)
            if piece.from_root and isinstance(event, BlockStored):
                event = msgspec.structs.replace(event, from_root=True)
            yield from self._apply(event, goes_on=piece.goes_on)

    def _apply(self, event: KVEvent, *, goes_on: bool) -> Work:
        self.created = isinstance(event, CacheCreated)
        if isinstance(event, AllBlocksCleared):
            self._counters.cleared += 1
            self.empty()
            self._doubt.over()
            if event.lost:
                self._standing.incomplete("events were lost")
        elif isinstance(event, CacheCreated):
            if self._intake.touched:
                self.restart("its cache was created")
            self._intake.created(event)
            self._resized()
            self._doubt.over()
        else:
            yield from self._intake.apply(event, goes_on=goes_on)

    def undecodable(self, reason: str) -> None:
        """What was lost may have been a removal, unless its type says it was not."""
        if reason not in self._counters.undecodable:
            log.warning("KV events of %s: undecodable: %s", self._key, reason)
        count(self._counters.undecodable, reason)
        if reason == "unknown_type" or reason.startswith("BlockStored"):
            self._standing.incomplete("undecodable events")
        else:
            self._doubt.missed("undecodable events")

    def restart(self, why: str) -> None:
        """The worker's process is another one: its cache is empty."""
        self._standing.log(logging.INFO, f"the worker restarted: {why}")
        self._counters.restarts += 1
        self.empty()

    def build_anew(self) -> None:
        """What the worker holds will be told from the beginning."""
        self._intake.clear()
        self._doubt.emptied()

    def empty(self) -> None:
        """The worker's cache is empty."""
        self.build_anew()
        self._emptied()
