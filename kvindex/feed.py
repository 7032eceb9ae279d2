"""One (worker, rank)'s event stream: is it whole, and what does it change.

Bytes and times in, index changes out. What is put in is worked off in its order: at
once, or where `sliced` is set in slices by `work`, so that a large batch never holds
the caller for long.

`complete` says whether the index has all that the worker holds: seen from the first
batch on (or since a clearing), nothing missed, skipped or refused.

Not here: sockets and threads; which batch is next (`following.py`); what its events
mean (`reader.py`, `intake.py`, `holder.py`); guesses (`history.py`).
"""

import logging
from collections.abc import Callable, Hashable, Sequence

from kvindex.counters import Counters
from kvindex.events import EventBatch
from kvindex.feed_view import FeedView
from kvindex.following import UNANSWERED
from kvindex.index import Indexes
from kvindex.intake import Work
from kvindex.orphans import Guess
from kvindex.parts import Stream, put_together
from kvindex.places import Places
from kvindex.settings import FeedSettings as FeedSettings
from kvindex.silence import Silence
from kvindex.standing import FeedState
from kvindex.wire import vllm
from kvindex.worklist import Worklist

log = logging.getLogger(__name__)


class Feed(FeedView):
    """The event stream of one (worker, rank).

    `likely_cause` is what the caller believes to be behind it when nothing comes; it is
    said with the state. `reached`: is it connected to where its events come from? With
    `can_replay` a replay is wanted where batches are missing: see `replay_from`. With
    `sliced` the caller calls `work`.
    """

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
        missed_reason: str = "missed batches",
    ) -> None:
        """`block_size` is in tokens, if known before the events say it.

        `on_change` is called after each change of state, reason, completeness, or size
        of blocks or cache; `on_restart` whenever the worker's cache is known to be
        empty: after a restart, and when it cleared all blocks; `on_gone` with each
        block's own hash that left all its media. The rest is as in `Stream`.
        """
        self.key = key
        self.settings = settings or FeedSettings()
        self.counters = Counters()
        self.likely_cause, self.reached = "", False
        self._on_change, self._on_restart = on_change, on_restart
        self._places = Places(clock)
        self._has_source = has_source
        self._silence = Silence(clock, self.settings.silent_after_s)
        self._worklist = Worklist()
        parts = put_together(
            Stream(key, model, has_source, decode, missed_reason, on_gone),
            indexes,
            self.counters,
            self.settings,
            clock=clock,
            changed=self._changed,
            emptied=self._emptied,
        )
        self._standing, self._intake, self._doubt = parts[:3]
        self._reader, self._following = parts[3:]
        if block_size is not None:
            self.use_block_size(block_size)

    @property
    def can_replay(self) -> bool:
        """Can the caller ask the worker for earlier batches?"""
        return self._following.can_replay

    @can_replay.setter
    def can_replay(self, value: bool) -> None:
        self._following.can_replay = value

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

    def _emptied(self) -> None:
        self._silence.excuse()
        self._places.clear()
        if self._on_restart:
            self._on_restart()

    @property
    def sliced(self) -> bool:
        """Does the caller call `work`?"""
        return self._worklist.sliced

    @sliced.setter
    def sliced(self, value: bool) -> None:
        self._worklist.sliced = value

    def work(self, budget: int) -> bool:
        """Apply about `budget` blocks of what was put in; True while some are left.

        Only needed where `sliced` is set.
        """
        return self._worklist.work(budget)

    def receive(self, sequence: int, payload: bytes | memoryview) -> None:
        """Take one batch off the live socket. Bad input is counted, never raised."""
        self._silence.heard()
        self._worklist.do(self._following.live(sequence, payload))

    def unframed(self, why: str) -> None:
        """A message of the live socket that is no batch at all was skipped."""
        log.debug("KV events of %s: %s", self.key, why)
        self._reader.undecodable("frames")

    def unsourced(self, why: str) -> None:
        """Where it has no event source, that is why; "": its worker tells of none."""
        self._standing.unsourced(why)

    def connected(self) -> None:
        """The event socket is connected. The next batch says if any were missed."""
        self.reached = True
        self._worklist.do(self._connected())

    def _connected(self) -> Work:
        if self._doubt.lost and self.last_sequence is None:
            self._doubt.lost = False
            self._standing.become(FeedState.LIVE, "no batch yet")
        if self.state is not FeedState.ESTIMATED:
            self._following.connected()
        yield 0

    def unanswered(self, why: str) -> None:
        """Where its events should come from nobody publishes; none has come yet."""
        self._worklist.do(self._unanswered(why))

    def _unanswered(self, why: str) -> Work:
        if self.last_sequence is None and self.state is FeedState.LIVE:
            self._doubt.lost = True
            self._doubt.suspend(FeedState.SILENT, why)
        yield 0

    def disconnected(self, why: str) -> None:
        """The event socket lost its peer: batches may be missed from now on."""
        self.reached = False
        self._worklist.do(self._disconnected(why))

    def _disconnected(self, why: str) -> Work:
        yield from self._following.disconnected()
        if not self._doubt.lost and self.state is not FeedState.ESTIMATED:
            self._doubt.lost = True
            self._doubt.suspend(FeedState.DEGRADED, why)

    def replaying(self, from_sequence: int) -> None:
        """The worker was asked to replay from this batch on, inclusive.

        Live batches wait from now on, until `replay_ended`.
        """
        self._worklist.do(self._replaying(from_sequence))

    def _replaying(self, from_sequence: int) -> Work:
        self._following.begin_replay(from_sequence)
        yield 0

    def replayed(self, sequence: int, payload: bytes) -> None:
        """Take one batch of the replay, in the order it came."""
        if self.last_sequence is None or sequence > self.last_sequence:
            self._silence.heard()
        self._worklist.do(self._following.replayed(sequence, payload))

    def replay_ended(self, complete: bool) -> None:
        """The end marker came, or (not `complete`) it was not waited for any longer.

        Look at `replay_from` afterwards: it may be wanted anew, after a restart.
        """
        end = self._following.end_replay if complete else self._following.give_up
        self._worklist.do(end())

    def restarted(self, why: str) -> None:
        """The worker's process is another one: its cache is empty."""
        self._worklist.do(self._restarted(why))

    def _restarted(self, why: str) -> Work:
        self._following.forget()
        self._reader.restart(why)
        state, reason = FeedState.LIVE, "no batch yet"
        if self.state is FeedState.ESTIMATED:
            state, reason = self.state, self.reason
        self._standing.become(state, reason, complete=False)
        if state is FeedState.LIVE:
            self._following.connected()
        yield 0

    def retire(self) -> None:
        """The worker is gone: what it held leaves the index."""
        self._worklist.clear()
        self._following.forget()
        self._intake.retire()

    def request_ended(
        self, *, stores_new_block: bool, sent_at: float | None = None, sure: bool = True
    ) -> None:
        """A request is over; with `stores_new_block` it must have caused an event.

        Or it probably has, if that is not `sure`. `sent_at` is when it was sent, by the
        clock. Where nothing comes for `silent_after_s`, the feed is silent.
        """
        if stores_new_block:
            self._silence.expect(sent_at, sure=sure)

    def confirmed(self, hashes: Sequence[int], delivered_blocks: int) -> None:
        """The worker found just `delivered_blocks` of these matchable blocks cached."""
        holder = self._intake.holder
        if holder is None or not holder.shelf.owner.suspect_blocks:
            return
        if holder.confirm(hashes, delivered_blocks):
            self._standing.incomplete("not all blocks are indexed")

    def placed(self, parent: int, block_hash: int, *, since: int, plain: bool) -> None:
        """The worker found `parent` cached and computed `block_hash` below it.

        Of what was stored below blocks no event told of, the index may know more some
        seconds later, when all events of it are there. `since`: how many orphans were
        counted when the request was sent. `plain`: it is known to have no salt.
        """
        holder = self._intake.holder
        if holder is not None and holder.orphans:
            self._places.add((parent, block_hash, since, plain))

    def _place(self) -> Work:
        for place in self._places.due():
            if (holder := self._intake.holder) is not None:
                holder.adoption.place(*place)
            yield 1
            yield from self._intake.adopt()

    def misguessed(self, guess: Guess) -> None:
        """The worker did not find what was guessed."""
        if (holder := self._intake.holder) is not None:
            holder.orphans.doubt(guess)

    def lacks(self, reason: str) -> None:
        """The worker holds blocks of which no event tells."""
        self._standing.incomplete(reason)

    def compared(self, held: int, delivered_blocks: int) -> None:
        """Of `held` leading blocks when a request was sent, so many were found."""
        self._doubt.compare(held, delivered_blocks)

    def tick(self) -> bool:
        """Let time pass; call it once a second, and sooner again where it is True."""
        if self._following.overdue(self.settings.replay_limit_s):
            self.replay_ended(complete=False)
        self._following.mend()
        if self._places:
            self._worklist.do(self._place())
        if self._has_source and self._silence.lasts:
            self._unheard()
        return self._doubt.tick()

    def _unheard(self) -> None:
        """Events should have come. Perhaps they were lost: a replay would have them."""
        if self.state is FeedState.SILENT or self._following.replay.open:
            return
        if self._silence.first_look() and self._following.ask_again():
            return
        if not self._doubt.lost or self.reason == UNANSWERED:
            why = self.likely_cause or "no events though requests stored blocks"
            self._doubt.suspend(FeedState.SILENT, why)
