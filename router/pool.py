"""The fleet: which workers there are, which of them may get a request now.

States change in one place, from what the gateway reports of its contacts; the pool
itself contacts nobody.

    joining --answer--> ready --failure--> suspect --6th failure in a row--> down
                          ^------------------answer-------------'-------------'

A failure (no connection, or one that broke) starts a back-off of 1 s, doubling to
30 s. Within it the worker gets no request; at its end exactly one may try, which
starts the back-off anew until its outcome is known. Failures of requests that were
already under way when the back-off began are the same failure, and count once.
A worker that answered 429 or 503 stays ready, but gets nothing for as long as it asked.
Any of them is still used where nothing better is left.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence

from kvindex.blocks import Namespace
from router.models import ListedModel, name_models
from router.rate import Rates
from router.worker import Worker, WorkerSpec, WorkerState

log = logging.getLogger(__name__)

BACK_OFF_S = 1.0
MAX_BACK_OFF_S = 30.0
DOWN_AFTER = 6
"""Failures in a row until down: the back-offs before it have added up to 31 s."""

BUSY_S = 1.0
MAX_BUSY_S = 30.0

OUT_OF_ORDER = (WorkerState.suspect, WorkerState.down)
SERVING = (WorkerState.ready, WorkerState.suspect)


class NoCandidate(Exception):
    """No worker is left to send a request to."""


class WorkerPool:
    """The workers by URL, and every change of their state."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        prefill_rate: float | None = None,
        on_change: Callable[[Worker, WorkerState], None] | None = None,
    ) -> None:
        """`on_change` is called with a worker and the state it had before.

        `prefill_rate` is that of every worker; None: it is learnt.
        """
        self._clock = clock
        self._rates = Rates(prefill_rate)
        self._on_change = on_change
        self._workers: dict[str, Worker] = {}

    @property
    def workers(self) -> list[Worker]:
        """All workers, in the order they were added."""
        return list(self._workers.values())

    def get(self, url: str) -> Worker | None:
        """The worker at that URL."""
        return self._workers.get(url)

    def add(self, spec: WorkerSpec) -> Worker:
        """Add a worker, joining. Raise ValueError if the URL is already there."""
        if spec.url in self._workers:
            raise ValueError(f"worker {spec.url} is already in the pool")
        worker = Worker(spec, clock=self._clock, rate=self._rates.add())
        self._workers[spec.url] = worker
        if spec.model is not None:
            self.listed(worker, [ListedModel(id=spec.model)])
        return worker

    def remove(self, url: str) -> Worker | None:
        """Take a worker out; what it still answers is released in its own ledger."""
        worker = self._workers.pop(url, None)
        if worker is not None:
            self._rates.remove(worker.rate)
        return worker

    def listed(self, worker: Worker, listing: Iterable[ListedModel]) -> None:
        """Note what a worker lists in `/v1/models`, in place of what it listed."""
        listing = tuple(listing)
        if listing == worker.listing:
            return
        known = {
            id: name.base
            for other in self._workers.values()
            for id, name in other.names.items()
            if name.adapter is None
        }
        worker.listing = listing
        worker.names = name_models(listing, known)

    def resolve(self, model: str | None, salt: str | None = None) -> Namespace:
        """The namespace of a request's blocks: base model, adapter, salt.

        A model nobody lists is taken for the base model of the first worker that has
        one, as any worker may answer it.
        """
        for worker in self._workers.values():
            name = worker.names.get(model) if model is not None else None
            if name is not None:
                return Namespace(model=name.base, adapter=name.adapter, salt=salt)
        bases = (worker.base_model for worker in self._workers.values())
        base = next((base for base in bases if base is not None), model or "")
        return Namespace(model=base, salt=salt)

    def rendering_keys(self, model: str | None) -> set[tuple[str, int]]:
        """The (profile, block size) pairs a request for that model needs."""
        return {
            (worker.profile, worker.block_size_of(rank))
            for worker in self._listing(model)
            for rank in worker.ranks
        }

    def candidates(
        self, model: str | None, exclude: frozenset[str] = frozenset()
    ) -> list[Worker]:
        """The workers a request may go to: the best class that is not empty.

        Those that list its model, or all if none does; of these, without `exclude`,
        the ones that work, else joining, else busy, else out of order, else draining.
        """
        now = self._clock()
        best: list[Worker] = []
        best_class = math.inf
        for worker in self._listing(model):
            if worker.url in exclude:
                continue
            its_class = _class(worker, now)
            if its_class < best_class:
                best, best_class = [worker], its_class
            elif its_class == best_class:
                best.append(worker)
        return best

    def serving(self, model: str | None) -> list[Worker]:
        """The ready and suspect workers that list a model, or of all if none does."""
        return [worker for worker in self._listing(model) if worker.state in SERVING]

    def _listing(self, model: str | None) -> Sequence[Worker]:
        workers = self._workers.values()
        listing = [worker for worker in workers if model in worker.names]
        return listing or list(workers)

    def chosen(self, worker: Worker) -> None:
        """A request goes to that worker: one that is out of order is now on trial."""
        if worker.state in OUT_OF_ORDER and self._clock() >= worker.retry_at:
            worker.on_trial = True
            worker.retry_at = self._clock() + back_off_s(worker.failures)

    def answered(self, worker: Worker) -> None:
        """The worker answered something, whatever it said: it works."""
        worker.failures = 0
        worker.on_trial = False
        if worker.state is not WorkerState.draining:
            self._enter(worker, WorkerState.ready, "answered")

    def connect_failed(self, worker: Worker, reason: str) -> None:
        """No connection to the worker, or one that broke before the answer's end."""
        now = self._clock()
        under_way = worker.failures and not worker.on_trial and now < worker.retry_at
        if under_way or worker.state is WorkerState.draining:
            return
        worker.failures += 1
        worker.on_trial = False
        worker.retry_at = now + back_off_s(worker.failures)
        down = worker.failures >= DOWN_AFTER
        self._enter(worker, WorkerState.down if down else WorkerState.suspect, reason)

    def busy(self, worker: Worker, retry_after_s: float | None = None) -> None:
        """The worker answered 429 or 503: nothing for it until then, at most 30 s.

        1 s where it did not say how long.
        """
        self.answered(worker)
        wait = BUSY_S if retry_after_s is None else retry_after_s
        wait = BUSY_S if math.isnan(wait) else min(max(0.0, wait), MAX_BUSY_S)
        now = self._clock()
        if now >= worker.busy_until:
            log.info("worker %s is busy: no requests for %.1f s", worker.url, wait)
        worker.busy_until = max(worker.busy_until, now + wait)

    def _enter(self, worker: Worker, state: WorkerState, reason: str) -> None:
        before, worker.state, worker.reason = worker.state, state, reason
        if state is before:
            return
        worker.since = self._clock()
        level = logging.WARNING if state in OUT_OF_ORDER else logging.INFO
        log.log(level, "worker %s: %s -> %s: %s", worker.url, before, state, reason)
        if self._on_change is not None:
            self._on_change(worker, before)


def back_off_s(failures: int) -> float:
    """How long a worker rests after that many failures in a row."""
    return min(BACK_OFF_S * 2.0 ** min(failures - 1, 10), MAX_BACK_OFF_S)


def _class(worker: Worker, now: float) -> int:
    """Rank a worker among candidates: 0 for one that works, higher is worse."""
    if worker.state is WorkerState.draining:
        return 4
    if worker.state in OUT_OF_ORDER and now < worker.retry_at:
        return 3
    if now < worker.busy_until:
        return 2
    return 1 if worker.state is WorkerState.joining else 0
