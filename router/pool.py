"""The fleet: which workers there are, which of them may get a request now.

How their states change is in `states.py`; nothing here contacts a worker.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from weakref import WeakValueDictionary

from kvindex.blocks import Namespace
from router.answers import Longest
from router.load import (
    LIVES_S,
    Load,
    LoadReport,
    after,
    goes_on,
    of_others,
    running_of_others,
)
from router.models import ListedModel, name_models
from router.rate import Rates
from router.states import SILENT, WORKS, States
from router.worker import Worker, WorkerSpec, WorkerState

SERVING = (WorkerState.ready, WorkerState.suspect)


USUAL_TOKENS = 1_000.0
"""Uncached tokens of a request, while none was seen."""
USUAL_WEIGHT = 0.05


class NoCandidate(Exception):
    """No worker is left to send a request to."""


class WorkerPool(States):
    """The workers by URL, and every change of their state."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        prefill_rate: float | None = None,
        on_change: Callable[[Worker, WorkerState], None] | None = None,
        checked: bool = False,
    ) -> None:
        """`on_change` is called with a worker and the state it had before.

        `prefill_rate` is that of every worker; None: it is learnt. `checked`: there
        are health checks.
        """
        super().__init__(clock=clock, on_change=on_change, checked=checked)
        self._rates = Rates(prefill_rate)
        self._longest = Longest()
        self._workers: dict[str, Worker] = {}
        self._removed = WeakValueDictionary[str, Worker]()
        """Those whose answers may go on: they are there until these end."""
        self._usual_tokens = USUAL_TOKENS

    @property
    def workers(self) -> list[Worker]:
        """All workers, in the order they were added."""
        return list(self._workers.values())

    def get(self, url: str) -> Worker | None:
        """The worker at that URL."""
        return self._workers.get(url)

    def add(self, spec: WorkerSpec) -> Worker:
        """Add a worker, joining. Raise ValueError if the URL is already there.

        What one that was removed still answers at the URL is in flight at this one.
        """
        if spec.url in self._workers:
            raise ValueError(f"worker {spec.url} is already in the pool")
        worker = Worker(
            spec, clock=self._clock, rate=self._rates.add(), longest=self._longest
        )
        self._workers[spec.url] = worker
        before = self._removed.pop(spec.url, None)
        if before is not None and before.inflight_requests:
            worker.ledgers, worker.pulse = before.ledgers, before.pulse
        if spec.model is not None:
            self.listed(worker, [ListedModel(id=spec.model)])
        return worker

    def remove(self, url: str) -> Worker | None:
        """Take a worker out; what it still answers is released in its own ledger."""
        worker = self._workers.pop(url, None)
        if worker is not None:
            self._rates.remove(worker.rate)
            self._removed[url] = worker
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

    @property
    def models_differ(self) -> bool:
        """Whether some workers have models that others do not have."""
        return len({worker.models for worker in self._workers.values()}) > 1

    def booked(self, uncached_tokens: int) -> None:
        """A request with so much to prefill was sent: what is usual."""
        self._usual_tokens += USUAL_WEIGHT * (uncached_tokens - self._usual_tokens)

    def reported(
        self,
        worker: Worker,
        rank: int,
        load: Load,
        *,
        own: int,
        source: str,
        lives_s: float = LIVES_S,
        own_in_all: int = 0,
    ) -> None:
        """A rank says what its load is, when `own` requests of ours may wait there.

        `own_in_all` of ours wait or run there.
        """
        now = self._clock()
        report = LoadReport(
            load=load,
            source=source,
            at=now,
            until=now + lives_s,
            others_tokens=of_others(load, own, self._usual_tokens),
            others_running=running_of_others(load, own, own_in_all),
            kv_usage=load.kv_usage,
        )
        before = worker.reports.get(rank)
        if goes_on(before, load):
            worker.pulse.answers.heard()
        worker.reports[rank] = after(before, report)
        if load.prefills is not None:
            worker.rate.counted(rank, load.prefills)

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

    def guessable(self, model: str | None, namespace: Namespace) -> Namespace | None:
        """The namespace, if ids may tell what workers for that model hold of it.

        That is: they have orphans. A salt comes with block 0, so of orphans it is not
        known, and they are nobody's guess who has one. Nor does an event tell of what
        is `untold`.
        """
        if namespace.salt is not None or namespace.untold is not None:
            return None
        return namespace if self._has_orphans(model) else None

    def _has_orphans(self, model: str | None) -> bool:
        return any(
            knowledge.feed.orphans
            for worker in self._listing(model)
            for knowledge in worker.knowledge.values()
        )

    def candidates(
        self, model: str | None, exclude: frozenset[str] = frozenset()
    ) -> list[Worker]:
        """The workers a request may go to: the best class that is not empty.

        Those that list its model, or all if none does; of these, without `exclude`,
        the ones that work, else joining, else busy, else out of order, else draining.
        Where most are doubted, they work: it is the answers that take long.
        """
        best: list[Worker] = []
        best_class = math.inf
        listing = self._listing(model)
        classes = [self.rank(worker) for worker in listing]
        doubted = sum(worker.doubted for worker in listing)
        for worker, its_class in zip(listing, classes, strict=True):
            if worker.url in exclude:
                continue
            if its_class == SILENT and worker.doubted and 2 * doubted > len(listing):
                its_class = WORKS
            if its_class < best_class:
                best, best_class = [worker], its_class
            elif its_class == best_class:
                best.append(worker)
        return best

    def listing(self, model: str | None) -> Sequence[Worker]:
        """The workers that list a model, or all if none does, whatever their state."""
        return self._listing(model)

    def serving(self, model: str | None) -> list[Worker]:
        """The ready and suspect workers that list a model, or of all if none does."""
        return [worker for worker in self._listing(model) if worker.state in SERVING]

    def _listing(self, model: str | None) -> Sequence[Worker]:
        workers = self._workers.values()
        listing = [worker for worker in workers if model in worker.names]
        return listing or list(workers)
