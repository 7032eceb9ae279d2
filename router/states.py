"""How the state of a worker changes: by what requests meet there, and by health checks.

    joining --answer--> ready --failure--> suspect --6th failure in a row--> down
                          ^-----------------return------------'-------------'

Failures are: no connection, or one that broke; 5xx as most of its latest answers;
health checks that fail, requests that time out, and first tokens, or several answers
that are not streamed, long overdue, while nothing else comes.

A failure starts a back-off of 1 s, doubling to 60 s. Failures of requests that were
under way when it began are the same failure, and count once. When it is over, and
health checks pass (where there are any), the worker returns on probation: one request
may try, which starts the back-off anew until its outcome is known; the next that tries
while nothing at all has come, one twice as long. One whole answer
ends the probation, but the failures are forgotten only once it has worked for as long
again as it rested: a worker that keeps failing rests longer and longer.

A worker that answered 429 or 503 stays ready, but gets nothing for as long as it asked.
"""

import logging
import math
from collections.abc import Callable

from router.overdue import SLOW_S, overdue
from router.standing import WorkerState
from router.worker import Worker

log = logging.getLogger(__name__)

BACK_OFF_S = 1.0
MAX_BACK_OFF_S = 60.0
DOWN_AFTER = 6
"""Failures in a row until down: the back-offs before it have added up to 31 s."""

BUSY_S = 1.0
MAX_BUSY_S = 30.0

ERROR_WEIGHT = 0.2
ERROR_LIMIT = 0.5
"""Share of 5xx in the latest answers: four in a row exceed it."""
NO_FAULT = frozenset({501})
"""5xx that tell nothing of the worker: it has not got that route."""

BUSY_AGAIN_S = 10.0
"""A worker that is busy again so soon is not worth another line."""

WORKS, SILENT = 0, 2
"""How good candidates are that work, and that are silent or busy."""

OUT_OF_ORDER = (WorkerState.suspect, WorkerState.down)


class States:
    """Every change of a worker's state, and what it may get in it."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        on_change: Callable[[Worker, WorkerState], None] | None = None,
        checked: bool = False,
    ) -> None:
        """`on_change` is called with a worker and the state it had before.

        `checked`: there are health checks, and workers return only when they pass.
        """
        self._clock = clock
        self._on_change = on_change
        self._checked = checked

    def contacted(self, worker: Worker) -> None:
        """It said who it is."""
        worker.heard = True
        if worker.state is WorkerState.joining:
            self._enter(worker, WorkerState.ready, "answered")
        elif not self._checked and worker.state in OUT_OF_ORDER:
            self._return(worker, "answered")

    def chosen(self, worker: Worker) -> None:
        """A request goes to that worker: one that is not proven is now on trial."""
        if not worker.on_probation and worker.state not in OUT_OF_ORDER:
            return
        now = self._clock()
        if worker.pulse.beats != worker.beats_at_trial:
            worker.unheard_trials, worker.beats_at_trial = 0, worker.pulse.beats
        elif worker.on_trial and now >= worker.retry_at:
            worker.unheard_trials += 1
        worker.on_trial = True
        worker.retry_at = now + back_off_s(worker.failures + worker.unheard_trials)

    def answered(self, worker: Worker, status: int = 200) -> None:
        """A status line came; 5xx speaks against the worker, anything else for it."""
        error = status >= 500 and status not in NO_FAULT
        worker.heard = worker.heard or not error
        worker.error_share += ERROR_WEIGHT * (error - worker.error_share)
        if error:
            if worker.on_trial or worker.error_share > ERROR_LIMIT:
                self.failed(worker, f"answers {status}", up=True)
        elif worker.state is WorkerState.joining:
            self._enter(worker, WorkerState.ready, "answered")

    def finished(self, worker: Worker) -> None:
        """A whole answer came: a trial has passed."""
        worker.pulse.beats += 1
        now = self._clock()
        if worker.on_trial:
            worker.on_trial = worker.on_probation = False
            worker.error_share = 0.0
            worker.retry_at = now
            worker.settled_at = now + back_off_s(worker.failures)
            if worker.state in OUT_OF_ORDER:
                worker.returns += 1
                self._enter(worker, WorkerState.ready, "answered")
        self._forgive(worker, now)

    def undecided(self, worker: Worker, *, left: bool = False) -> None:
        """A request ended that tells nothing of the worker: another one may try.

        Not where its client `left` and nothing at all has come since the trial began:
        who waits in vain, and not for long, must not cost a worker's rest.
        """
        heard = worker.pulse.beats != worker.beats_at_trial
        if worker.on_trial and (heard or not left):
            worker.retry_at = min(worker.retry_at, self._clock())

    def failed(self, worker: Worker, reason: str, *, up: bool = False) -> None:
        """The worker failed: it rests. One that is `up`, as it answers, is never down.

        Whoever sends requests that no worker can bear must not shut the gateway.
        """
        now = self._clock()
        worker.pulse.forget()
        if worker.state is WorkerState.draining or (
            worker.failures and self._rests(worker)
        ):
            return
        self._forgive(worker, now)
        worker.failures += 1
        worker.on_trial = worker.on_probation = worker.stalled = False
        worker.checks = 0
        worker.settled_at = math.inf
        heard = worker.pulse.beats != worker.beats_at_trial
        before = 0 if heard else max(0, worker.unheard_trials - 1)
        worker.retry_at = now + back_off_s(worker.failures + before)
        down = worker.failures >= DOWN_AFTER and not up
        self._enter(worker, WorkerState.down if down else WorkerState.suspect, reason)

    def timed_out(self, worker: Worker, *, unheard: bool) -> None:
        """A request waited for too long: a failure, unless other answers come.

        `unheard`: nothing has come since it was sent; else first tokens tell.
        """
        if unheard or worker.pulse.silent_s(worker.prefill_s) > SLOW_S:
            self.failed(worker, "no answer in time")

    def checked(
        self, worker: Worker, reason: str | None, *, rise: int, fall: int
    ) -> None:
        """A health check passed, or failed for that reason.

        So many in a row, `rise` and `fall`, change the state.
        """
        if reason is None:
            worker.pulse.checked()
            worker.checks = max(1, worker.checks + 1)
            over = worker.checks >= rise and self._clock() >= worker.retry_at
            if over and worker.state in OUT_OF_ORDER and not worker.stalled:
                self._return(worker, "health checks pass")
        else:
            worker.checks = min(-1, worker.checks - 1)
            if worker.checks <= -fall and worker.state is WorkerState.ready:
                self.failed(worker, f"health checks fail: {reason}")

    def busy(self, worker: Worker, retry_after_s: float | None = None) -> None:
        """The worker answered 429 or 503: nothing for it until then, at most 30 s.

        1 s where it did not say how long.
        """
        self.answered(worker)
        wait = BUSY_S if retry_after_s is None else retry_after_s
        wait = BUSY_S if math.isnan(wait) else min(max(0.0, wait), MAX_BUSY_S)
        now = self._clock()
        if now >= worker.busy_until + BUSY_AGAIN_S:
            log.info("worker %s is busy: no requests for %.1f s", worker.url, wait)
        worker.busy_until = max(worker.busy_until, now + wait)

    def drain(self, worker: Worker) -> None:
        """No new requests for it, unless there is nobody else."""
        self._enter(worker, WorkerState.draining, "asked to drain")

    def undrain(self, worker: Worker) -> None:
        """It takes part again, as one that has just joined: ready if ever heard of."""
        if worker.state is WorkerState.draining:
            worker.failures = worker.unheard_trials = 0
            worker.retry_at = 0.0
            worker.on_trial = worker.on_probation = worker.stalled = False
            state = WorkerState.ready if worker.heard else WorkerState.joining
            self._enter(worker, state, "no longer drained")

    def rank(self, worker: Worker) -> int:
        """How good a candidate it is now: 0 for one that works, higher is worse."""
        silent = self._look(worker)
        if worker.state is WorkerState.draining:
            return 4
        if worker.stalled:
            return SILENT
        now = self._clock()
        if worker.state in OUT_OF_ORDER and (self._checked or now < worker.retry_at):
            return 3
        if worker.on_probation and now < worker.retry_at:
            return 3
        if silent or now < worker.busy_until:
            return SILENT
        return 1 if worker.state is WorkerState.joining else WORKS

    def _rests(self, worker: Worker) -> bool:
        """Whether its back-off is not over, and nobody tries it nevertheless."""
        return self._clock() < worker.retry_at and not worker.on_trial

    def _look(self, worker: Worker) -> bool:
        """Whether anything is overdue; a stall is noticed, and its end."""
        found, doubted = overdue(worker), worker.doubted
        worker.doubted = found is not None and found.doubtful
        if found is None:
            if worker.stalled:
                self._stall_over(worker, long=doubted and worker.pulse.answers.waiting)
        elif found.gave_up:
            self.failed(worker, found.reason)
        elif found.long and worker.state is WorkerState.ready:
            worker.stalled, worker.beats_at_stall = True, worker.pulse.beats
            self._enter(worker, WorkerState.suspect, found.reason)
        return found is not None

    def _stall_over(self, worker: Worker, *, long: bool) -> None:
        """`long`: what is waited for takes no longer than others have taken since."""
        worker.stalled = False
        if long or worker.pulse.beats != worker.beats_at_stall:
            self._enter(worker, WorkerState.ready, "its answers go on")
        else:
            self.failed(worker, "what was overdue never came")

    def _return(self, worker: Worker, reason: str) -> None:
        """Ready, on probation: see the top of this file."""
        worker.on_probation = True
        worker.stalled = False
        worker.returns += 1
        self._enter(worker, WorkerState.ready, reason)

    def _forgive(self, worker: Worker, now: float) -> None:
        if now >= worker.settled_at:
            worker.failures, worker.settled_at = 0, math.inf

    def _enter(self, worker: Worker, state: WorkerState, reason: str) -> None:
        before, worker.state, worker.reason = worker.state, state, reason
        if state is before:
            return
        worker.since = self._clock()
        if state is WorkerState.ready:
            worker.checks = 0  # those that failed while it was not are no news
        if state in OUT_OF_ORDER or before in OUT_OF_ORDER:
            worker.doubt()
        level = logging.WARNING if state in OUT_OF_ORDER else logging.INFO
        log.log(level, "worker %s: %s -> %s: %s", worker.url, before, state, reason)
        if self._on_change is not None:
            self._on_change(worker, before)


def back_off_s(failures: int) -> float:
    """How long a worker rests after that many failures in a row."""
    return min(BACK_OFF_S * 2.0 ** min(failures - 1, 10), MAX_BACK_OFF_S)
