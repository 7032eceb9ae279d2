"""Which batch of a stream is next: live ones, replayed ones, and those that waited.

Theory of operation. A batch whose number follows the last one is applied. Or else:

- A higher number: batches were missed. Where a replay can be had it is wanted, from the
  last batch seen inclusive, and live batches wait for its end, within a bound; else
  what is held is in doubt.
- A lower number on the live socket, or the same with other bytes: the worker restarted,
  its cache is empty. So it is where a replay has other bytes for the last batch seen,
  or ends without it; then it is asked again from batch 0. A replayed batch is no step
  back, and a live one that a replay has brought is known.
- A replay of all batches has two of one number: it counts as one that did not end.
- The first number is above 0: a late join; a replay from 0 is wanted.
- Where a replay failed, or one more is too many (`pace.py`), all batches are wanted
  anew some time later (`mending.py`).
- Two publishers on one stream: nothing of it is applied, all is in doubt.

Not here: what a batch contains (`reader.py`), sockets, time limits (`feed.py`).
"""

import logging
from collections.abc import Callable

from kvindex.counters import Counters
from kvindex.doubt import Doubt
from kvindex.intake import Work
from kvindex.mending import Mending
from kvindex.pace import Pace
from kvindex.reader import Reader
from kvindex.replay import Replay
from kvindex.sequence import Arrival, LiveOrder, Payload, Progress, Step, digest_of
from kvindex.standing import FeedState, Standing

ASKING = "asking for earlier batches"
UNHEARD = "requests stored blocks, no event came: asking for batches that were lost"
ANEW = "asking for all batches anew"
UNANSWERED = "the replay did not end"
TWICE = "a replay has two batches of one number"
LATE = "joined after the first batch"
SHARED = "two publishers share this stream"


class Following:
    """The order of one stream. `can_replay` is the caller's."""

    def __init__(
        self,
        *,
        standing: Standing,
        doubt: Doubt,
        reader: Reader,
        counters: Counters,
        clock: Callable[[], float],
        missed_reason: str,
        pause_s: float,
    ) -> None:
        """No replay is wanted for `pause_s` after one that did not end."""
        self.can_replay, self.replay = False, Replay()
        self._standing = standing
        self._doubt = doubt
        self._reader = reader
        self._counters = counters
        self._clock = clock
        self._missed_reason = missed_reason
        self._pause_s = pause_s
        self._pace = Pace(clock())
        self._whole = self._shared = False
        self._order = LiveOrder()
        self._progress = Progress()
        self._mending = Mending(clock, pause_s)

    @property
    def last(self) -> int | None:
        """The number of the last batch applied."""
        return self._progress.last

    @property
    def _may_ask(self) -> bool:
        return self.can_replay and self._pace.free(self._clock())

    def live(self, sequence: int, payload: Payload) -> Work:
        """A batch off the live socket."""
        digest = digest_of(payload)
        arrival = self._order.arrive(sequence, digest)
        if arrival is Arrival.DUPLICATE:
            self._counters.duplicates += 1
            return
        self._counters.batches += 1
        if arrival in (Arrival.LATE, Arrival.SHARED):
            self._counters.out_of_order += 1
            if arrival is Arrival.SHARED or not self.replay.open:  # else it mends that
                self._disorder(shared=arrival is Arrival.SHARED)
            return
        self._shared = False
        if arrival is Arrival.RESTART:
            self.replay.drop()
            if sequence != self.last or not self._reader.created:  # of another window
                self._restart("its sequence went back")
            self._progress = Progress()
        if not self.replay.open:
            yield from self._take(sequence, payload, digest, ask=self.can_replay)
        elif not self.replay.hold((sequence, payload, digest)):
            yield from self.give_up()

    def _take(self, sequence: int, payload: Payload, digest: int, *, ask: bool) -> Work:
        """Apply a batch, unless it is to wait for those before it."""
        step = self._progress.step(sequence, digest)
        if step is Step.KNOWN:
            return
        if step is Step.OTHER:
            self._restart("another batch has the number of the last")
            step = Step.FIRST
        if ask and (step is Step.GAP or (step is Step.FIRST and sequence)):
            if self._may_ask:
                self._want(step)
                self.replay.hold((sequence, payload, digest))
                return
            self._mending.missed()
        if step is Step.GAP:
            self._missed(sequence)
            self._mending.missed()
        elif step is Step.FIRST:
            late = LATE if sequence else ""
            self._standing.become(FeedState.LIVE, late, complete=not sequence)
        elif self._doubt.lost or self._standing.state is FeedState.SILENT:
            self._doubt.resume()
        self._doubt.lost = False
        self._progress.applied(sequence, digest)
        yield from self._reader.read(payload)

    def _missed(self, sequence: int) -> None:
        self._counters.gaps += 1
        self._counters.missed_batches += self._progress.missed(sequence)
        self._doubt.missed(self._missed_reason)

    def _disorder(self, *, shared: bool) -> None:
        """Batches in no order: what is held may be stale."""
        if not shared:
            self._doubt.missed("batches out of order")
        elif not self._shared:
            self._shared = True
            self.replay.drop()
            self._standing.log(logging.WARNING, SHARED)
            self._doubt.missed(SHARED)
        self._doubt.lost = self._doubt.lost or shared

    def _restart(self, why: str) -> None:
        self._reader.restart(why)
        self._progress = Progress()
        self._mending.over()

    def forget(self) -> None:
        """The worker is another process; the next batch is its first."""
        self.replay.drop()
        self._order, self._progress, self._shared = LiveOrder(), Progress(), False
        self._mending.over()

    def disconnected(self) -> Work:
        """The next batch comes by another connection."""
        self._order.parted()
        yield from self.end_replay(complete=False)

    def connected(self) -> None:
        """The live socket is connected: a replay says what came before."""
        unsure = self.last is None or self._doubt.lost
        if unsure and self._may_ask and not self.replay.open and not self._shared:
            self._want(Step.FIRST if self.last is None else Step.GAP)

    def ask_again(self) -> bool:
        """Want what came after the last batch; False: cannot be had.

        Where nothing was ever heard, there may be nobody to ask.
        """
        if self.last is None or not self._may_ask or self._doubt.lost or self._shared:
            return False
        self._want(Step.GAP, UNHEARD)
        return True

    def mend(self) -> None:
        """Where a replay failed want one again, when it is time to.

        Of what is missing at the end, or where batches came after it of all.
        """
        complete = self._standing.complete
        if complete and self._standing.state is FeedState.LIVE:
            self._mending.over()
        lost = self._doubt.lost and self._standing.reason != UNANSWERED
        away = self.last is None or lost or self._shared or self.replay.open
        if not self._mending.due or not self._may_ask or away:
            return
        self._mending.begin()
        self._want(Step.GAP, ASKING if complete else ANEW, anew=not complete)

    def _build_anew(self, sequence: int) -> None:
        """The first batch of all there are: if it is batch 0, what is held goes."""
        self.replay.anew = False
        if sequence:
            self._mending.hopeless()
        else:
            self._reader.build_anew()
            self._progress, self._whole = Progress(), True

    def _want(self, step: Step, why: str = "", *, anew: bool = False) -> None:
        """Want a replay: from the last batch seen, or of all there are."""
        start, now = 0 if anew else self.last or 0, self._clock()
        self._pace.asked(now, whole=not start)
        self.replay.want(start, now, anew=anew)
        lost = step is Step.FIRST or self._doubt.lost
        reason = ASKING if lost else self._missed_reason
        self._doubt.suspend(FeedState.REPLAYING, why or reason)

    def begin_replay(self, from_sequence: int) -> None:
        """A replay was asked: its batches come, and then its end."""
        self.replay.begin(from_sequence, self.last, self._clock())
        self._whole = self.replay.asked_last is None
        if self._standing.state is not FeedState.REPLAYING:
            self._doubt.suspend(FeedState.REPLAYING, ASKING)

    def replayed(self, sequence: int, payload: bytes) -> Work:
        """A batch of the replay. Those before the last one seen change nothing."""
        replay = self.replay
        if replay.active and replay.anew:
            self._build_anew(sequence)
        last = self.last
        if not replay.active or replay.again or (last is not None and sequence < last):
            return
        digest = digest_of(payload)
        replay.returned = replay.returned or sequence == replay.asked_last
        step = self._progress.step(sequence, digest)
        if step is Step.KNOWN:
            return
        if step is Step.OTHER:
            self._other()
            return
        if step is Step.GAP:
            self._missed(sequence)
        elif step is Step.FIRST:
            state, why = FeedState.REPLAYING, self._standing.reason
            self._standing.become(state, why, complete=not sequence)
        self._counters.replayed += 1
        self._progress.applied(sequence, digest, ahead=True)
        yield from self._reader.read(payload)

    def _other(self) -> None:
        """A replay has another batch of the last number."""
        self.replay.again = True
        if not self._whole:
            self._restart("a replay has another batch of the last number")
            return
        self._standing.log(logging.WARNING, TWICE)
        self._reader.build_anew()
        self._standing.incomplete(TWICE)
        self._progress = Progress()

    def end_replay(self, *, complete: bool = True) -> Work:
        """The end marker of the replay came, or it will not come any more."""
        replay = self.replay
        if not replay.open or (complete and not replay.active):
            return
        gone = replay.asked_last is not None and not replay.returned
        if complete and gone and not replay.again:
            self._restart("a replay does not have the last batch")
            self._order = LiveOrder()  # its numbers are lower, and no restart again
            self._whole, replay.again = False, True
        if complete and replay.again:
            if self._may_ask and not self._whole:
                self._want(Step.FIRST)
                return
            self._rest()
            complete = False
        self._stand(complete)
        for held in replay.close():
            yield from self._take(*held, ask=False)

    def give_up(self) -> Work:
        """The replay did not end in time: the next one must wait."""
        if self.replay.open:
            self._rest()
        yield from self.end_replay(complete=False)

    def _rest(self) -> None:
        self._pace.pause(self._clock(), self._pause_s)
        self._mending.missed()

    def overdue(self, limit_s: float) -> bool:
        """Has a replay been wanted, or asked, for so long?"""
        return self.replay.open and self._clock() - self.replay.since >= limit_s

    def _stand(self, complete: bool) -> None:
        """The state after a replay; a batch that has waited may change it again."""
        if self.last is None:
            why = TWICE if self.replay.again and self._whole else "no batch yet"
            self._standing.become(FeedState.LIVE, why, complete=False)
        elif complete or (self.replay.anew and not self._doubt.lost):
            self._doubt.lost = False
            self._doubt.resume()
        else:
            self._doubt.suspend(FeedState.DEGRADED, UNANSWERED)
            self._doubt.lost = True
