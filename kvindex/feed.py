"""One (worker, rank)'s event stream: is it whole, and what does it change.

Theory of operation. Bytes and times in, index changes out. A batch whose number follows
the last one is applied. What else can be:

- A higher number: batches were missed. What was stored before is in doubt (*degraded*):
  half weight until stored again or confirmed, dropped when contradicted or after
  `suspect_ttl_s`; with none left the feed is *live* again, though not complete.
- The same number and bytes: a duplicate, ignored. The same number and other bytes, or a
  lower number: the worker restarted, its cache is empty.
- A lost connection: as if batches were missed, until the next one shows otherwise.
- Nothing, though requests that must have stored a block have ended: *silent*.

`complete` says whether the index has all that the worker holds: seen from the first
batch on (or since a clearing), nothing missed, skipped or refused. Batches that arrive
by replay will enter beside `receive`, while the state is *replaying*.

Not here: sockets and threads; what an event means (`intake.py`, `holder.py`); guesses
(`history.py`).
"""

import logging
from collections.abc import Callable, Hashable, Sequence

import msgspec

from kvindex.counters import Counters, count
from kvindex.doubt import Doubt
from kvindex.events import AllBlocksCleared, EventBatch, UndecodableBatch
from kvindex.index import Indexes, PrefixIndex
from kvindex.intake import Intake
from kvindex.owner import Owner
from kvindex.sequence import Arrival, SequenceCheck
from kvindex.standing import FeedState, Standing
from kvindex.wire import vllm

log = logging.getLogger(__name__)


class FeedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds; `orphan_blocks` bounds what is kept without its parent."""

    suspect_ttl_s: float = 600.0
    silent_after_s: float = 10.0
    orphan_blocks: int = 8_192


class Feed:
    """The event stream of one (worker, rank)."""

    def __init__(
        self,
        *,
        model: str,
        indexes: Indexes,
        key: Hashable,
        clock: Callable[[], float],
        settings: FeedSettings | None = None,
        block_size: int | None = None,
        on_change: Callable[["Feed"], None] | None = None,
        on_restart: Callable[[], None] | None = None,
        on_gone: Callable[[int], None] | None = None,
        has_source: bool = True,
        decode: Callable[[bytes], EventBatch] = vllm.decode_batch,
    ) -> None:
        """`block_size` is in tokens, if known before the events say it.

        `on_change` is called after each change of state, reason, completeness or block
        size; `on_restart` whenever the worker's cache is known to be empty: after a
        restart, and when it cleared all blocks; `on_gone` with each block's own hash
        that left all its media.
        """
        self.key = key
        self.settings = settings or FeedSettings()
        self.counters = Counters()
        self._clock = clock
        self._decode = decode
        self._on_change = on_change
        self._on_restart = on_restart
        self._has_source = has_source
        self._standing = Standing(
            key=key,
            clock=clock,
            state=FeedState.LIVE if has_source else FeedState.ESTIMATED,
            reason="no batch yet" if has_source else "no event source",
            changed=self._changed,
        )
        self._intake = Intake(
            model=model,
            indexes=indexes,
            key=key,
            counters=self.counters,
            orphan_blocks=self.settings.orphan_blocks,
            on_gone=on_gone,
        )
        self._sequence = SequenceCheck()
        self._last_batch_at: float | None = None
        self._awaiting_since: float | None = None
        self._doubt = Doubt(
            standing=self._standing,
            intake=self._intake,
            clock=clock,
            ttl_s=self.settings.suspect_ttl_s,
        )
        if block_size is not None:
            self.use_block_size(block_size)

    @property
    def state(self) -> FeedState:
        """How far what the feed says can be trusted."""
        return self._standing.state

    @property
    def reason(self) -> str:
        """Why it is in this state; empty where all is well."""
        return self._standing.reason

    @property
    def since(self) -> float:
        """When it came to this state, by the clock."""
        return self._standing.since

    @property
    def complete(self) -> bool:
        """Does the index have all that the worker holds?"""
        return self._standing.complete

    @property
    def last_sequence(self) -> int | None:
        """The number of the last batch, None before the first."""
        return self._sequence.last

    @property
    def block_size(self) -> int | None:
        """Tokens per block in the index, None until known."""
        return self.index.block_size if self.index else None

    @property
    def index(self) -> PrefixIndex | None:
        """Where the worker's blocks are, once their size is known."""
        holder = self._intake.holder
        return holder.shelf.index if holder else None

    @property
    def owner(self) -> Owner | None:
        """This (worker, rank) in `index`."""
        holder = self._intake.holder
        return holder.shelf.owner if holder else None

    @property
    def orphans(self) -> int:
        """Blocks that wait for their parent."""
        holder = self._intake.holder
        return len(holder.orphans) if holder else 0

    def use_block_size(self, block_size: int) -> None:
        """The worker says how many tokens its blocks have; its events may know better.

        Ignored once blocks are held.
        """
        if self.owner is None or not self.owner.blocks:
            self._intake.use_block_size(block_size)
            self._changed()

    def _changed(self) -> None:
        if self._on_change:
            self._on_change(self)

    def connected(self) -> None:
        """The event socket is connected. The next batch says if any were missed."""
        if self._doubt.lost and self.last_sequence is None:
            self._doubt.lost = False
            self._standing.become(FeedState.LIVE, "no batch yet")

    def disconnected(self, why: str) -> None:
        """The event socket lost its peer: batches may be missed from now on."""
        if not self._doubt.lost and self.state is not FeedState.ESTIMATED:
            self._doubt.lost = True
            self._doubt.suspend(FeedState.DEGRADED, why)

    def receive(self, sequence: int, payload: bytes) -> None:
        """Take one batch off the live socket. Bad input is counted, never raised."""
        arrival = self._sequence.arrive(sequence, payload)
        if arrival is Arrival.DUPLICATE:
            self.counters.duplicates += 1
            return
        self.counters.batches += 1
        self._last_batch_at, self._awaiting_since = self._clock(), None
        self._follow(arrival, sequence)
        self._doubt.lost = False
        size = self.block_size
        self._apply(payload)
        if self._intake.incomplete:
            self._standing.incomplete("not all blocks are indexed")
        if size != self.block_size:
            self._changed()

    def unframed(self, why: str) -> None:
        """A message of the live socket that is no batch at all was skipped."""
        log.debug("KV events of %s: %s", self.key, why)
        self._undecodable("frames")

    def _follow(self, arrival: Arrival, sequence: int) -> None:
        """Come to the state that the batch's number says."""
        if arrival is Arrival.GAP:
            self.counters.gaps += 1
            self.counters.missed_batches += self._sequence.missed
            self._doubt.missed("missed batches")
        elif arrival is Arrival.NEXT:
            if self._doubt.lost or self.state is FeedState.SILENT:
                self._doubt.resume()
        else:
            if arrival is Arrival.RESTART:
                self._restart("its sequence went back")
            late = "" if sequence == 0 else "joined after the first batch"
            self._standing.become(FeedState.LIVE, late, complete=sequence == 0)

    def _apply(self, payload: bytes) -> None:
        try:
            batch = self._decode(payload)
        except UndecodableBatch:
            self._undecodable("batch")
            return
        for reason in batch.undecodable:
            self._undecodable(reason)
        for event in batch.events:
            count(self.counters.events, type(event).__name__)
            if isinstance(event, AllBlocksCleared):
                self.counters.cleared += 1
                self._empty()
                self._standing.become(FeedState.LIVE, "", complete=True)
            else:
                self._intake.apply(event)

    def _undecodable(self, reason: str) -> None:
        """What was lost may have been a removal, unless its type says it was not."""
        if reason not in self.counters.undecodable:
            log.warning("KV events of %s: undecodable: %s", self.key, reason)
        count(self.counters.undecodable, reason)
        if reason == "unknown_type" or reason.startswith("BlockStored"):
            self._standing.incomplete("undecodable events")
        else:
            self._doubt.missed("undecodable events")

    def restarted(self, why: str) -> None:
        """The worker's process is another one: its cache is empty."""
        self._restart(why)
        self._sequence.forget()
        state, reason = FeedState.LIVE, "no batch yet"
        if self.state is FeedState.ESTIMATED:
            state, reason = self.state, self.reason
        self._standing.become(state, reason, complete=False)

    def _restart(self, why: str) -> None:
        self._standing.log(logging.INFO, f"the worker restarted: {why}")
        self.counters.restarts += 1
        self._empty()

    def _empty(self) -> None:
        self._intake.clear()
        self._awaiting_since = None
        if self._on_restart:
            self._on_restart()

    def retire(self) -> None:
        """The worker is gone: what it held leaves the index."""
        self._intake.retire()

    def request_ended(
        self, *, stores_new_block: bool, sent_at: float | None = None
    ) -> None:
        """A request is over; with `stores_new_block` it must have caused an event.

        `sent_at` is when it was sent, by the clock: engines announce blocks while a
        request runs. Where nothing comes for `silent_after_s`, the feed is silent.
        """
        now = self._clock()
        since, last = now if sent_at is None else sent_at, self._last_batch_at
        unheard = stores_new_block and (last is None or last < since)
        if unheard and self._awaiting_since is None:
            self._awaiting_since = now

    def confirmed(self, hashes: Sequence[int], delivered_blocks: int) -> None:
        """The worker found just `delivered_blocks` of these matchable blocks cached."""
        holder = self._intake.holder
        if holder is None or not holder.shelf.owner.suspect_blocks:
            return
        if holder.confirm(hashes, delivered_blocks):
            self._standing.incomplete("not all blocks are indexed")

    def tick(self) -> bool:
        """Let time pass; call it once a second, and sooner again where it is True."""
        hopeful = self.state is not FeedState.SILENT and not self._doubt.lost
        if hopeful and self._awaiting_since is not None and self._has_source:
            waited = self._clock() - self._awaiting_since
            if waited >= self.settings.silent_after_s:
                why = "no events though requests stored blocks"
                self._doubt.suspend(FeedState.SILENT, why)
        return self._doubt.tick()
