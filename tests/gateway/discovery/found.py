"""A fleet that only sources fill; nobody contacts its workers."""

from gateway.background import Keeper
from gateway.metrics.registry import Metrics
from gateway.workers.fleet import Fleet
from router.pool import WorkerPool
from router.worker import Worker, WorkerState


class Found:
    """A fleet that only sources fill; a worker is ready as soon as it is there."""

    def __init__(self) -> None:
        self.went: list[str] = []
        self.pool = WorkerPool(clock=lambda: 0.0)
        self.fleet = Fleet(
            self.pool,
            work=lambda worker: {},
            came=self.pool.contacted,
            went=lambda worker: self.went.append(worker.url),
            keeper=Keeper(Metrics()),
        )

    @property
    def states(self) -> dict[str, str]:
        """The state of each worker, by what its URL ends with."""
        return {
            w.url.removeprefix("http://"): str(w.state.value) for w in self.pool.workers
        }

    def worker(self, at: str) -> Worker:
        """The worker at `host:port`."""
        worker = self.pool.get(f"http://{at}")
        assert worker is not None
        return worker

    def ready(self) -> list[str]:
        """Those that are ready."""
        return [at for at, s in self.states.items() if s == WorkerState.ready]
