"""The workers while the gateway serves: each with its background tasks; they may come
and go.

A worker that is taken out gets nothing new and is asked nothing more, while what it
still answers is relayed to its end. Which workers there should be is told from outside:
the command line, the workers file (`workers_file.py`), the API (`worker_routes.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from gateway.background import Keeper, Work
from router.pool import WorkerPool
from router.worker import Worker, WorkerSpec

log = logging.getLogger(__name__)


class Fleet:
    """Starts and stops what is done for each worker."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        work: Callable[[Worker], Mapping[str, Work]],
        came: Callable[[Worker], None],
        went: Callable[[Worker], None],
        keeper: Keeper,
    ) -> None:
        """`work` names what runs for a worker for as long as it is there.

        `came` is called with one that was added, `went` with one that was taken out,
        once its tasks have ended.
        """
        self._pool = pool
        self._work = work
        self._came = came
        self._went = went
        self._keeper = keeper
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Do the work of the workers there are, and of those that come; for ever."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for worker in self._pool.workers:
                    self._start(worker)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            self._tasks.clear()

    def add(self, spec: WorkerSpec, *, api_key: str | None = None) -> Worker:
        """Add a worker; ValueError where its URL is there already."""
        worker = self._pool.add(spec)
        worker.api_key = api_key
        log.info("worker %s was added", worker.url)
        self._came(worker)
        self._start(worker)
        return worker

    async def remove(self, url: str) -> bool:
        """Take a worker out; whether there was one."""
        worker = self._pool.remove(url)
        if worker is None:
            return False
        log.info("worker %s was taken out: %d requests of it go on", url,
                 worker.inflight_requests)  # fmt: skip
        tasks = self._tasks.pop(url, [])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._went(worker)
        return True

    def _start(self, worker: Worker) -> None:
        if self._group is not None:  # else `run` will
            self._tasks[worker.url] = [
                self._group.create_task(self._keeper.keep(name, work))
                for name, work in self._work(worker).items()
            ]
