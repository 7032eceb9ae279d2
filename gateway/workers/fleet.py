"""The workers there are, which come and go, each with its tasks in the background.

A worker that is taken out gets nothing new and is asked nothing more, while what it
still answers is relayed to its end. Which workers there should be is told from outside,
by source (`namings.py`): the command line, the workers file (`workers_file.py`), the
API (`worker_routes.py`), discovery.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from gateway.background import Keeper, Work
from gateway.workers.namings import API, Named, Namings
from router.pool import WorkerPool
from router.worker import Worker, WorkerSpec, WorkerState

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
        namings: Namings | None = None,
    ) -> None:
        """`work` names what runs for a worker for as long as it is there.

        `came` is called with one that was added, `went` with one that was taken out,
        once its tasks have ended. `namings` say who named those that are there.
        """
        self.namings = namings or Namings()
        self._pool = pool
        self._work = work
        self._came = came
        self._went = went
        self._keeper = keeper
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.settling = asyncio.Lock()
        """Held while sources change who is there; whoever holds it sees no change."""
        self._drained: set[str] = set()
        """Those that drain as their sources say so, and not by hand."""

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
        """Add a worker by hand; ValueError where its URL is there already."""
        worker = self._put_in(Named(spec=spec, api_key=api_key), API)
        self.namings.name(API, Named(spec=spec, api_key=api_key))
        return worker

    async def remove(self, url: str) -> bool:
        """Take a worker out by hand, whoever names it; whether there was one."""
        self.namings.dismiss(url)
        return bool(await self._take_out([url]))

    async def settle(self, source: str, wanted: Mapping[str, Named]) -> None:
        """Have a source name these workers, by URL, and no others."""
        async with self.settling:
            changed = self.namings.settle(source, wanted)
            await self._take_out(filter(self._is_to_go, changed))
            for url in changed:
                try:
                    self._follow(url)
                except ValueError as error:  # added by hand at this very moment
                    log.warning("%s: %s", source, error)
                    self.namings.forget(source, url)
                await asyncio.sleep(0)  # there may be hundreds

    def _is_to_go(self, url: str) -> bool:
        """Whether a worker is named no more, or is to be made anew."""
        named, worker = self.namings.get(url), self._pool.get(url)
        return worker is not None and (named is None or _is_new(named, worker))

    def _follow(self, url: str) -> None:
        """Have a worker be there, and drain or not, as it is named now."""
        named = self.namings.get(url)
        worker = self._pool.get(url)
        if named is None or (worker is None and named.draining):
            return
        sources = ", ".join(self.namings.sources(url))
        if worker is None:
            self._put_in(named, sources)
            return
        worker.api_key = named.api_key
        if named.draining:
            self._drain(worker, sources)
        elif url in self._drained:
            self._drained.discard(url)
            self._pool.undrain(worker)

    def _drain(self, worker: Worker, sources: str) -> None:
        if worker.state is not WorkerState.draining:
            log.info("worker %s is about to leave, says %s", worker.url, sources)
            self._drained.add(worker.url)
            self._pool.drain(worker)

    def _put_in(self, named: Named, sources: str) -> Worker:
        worker = self._pool.add(named.spec)
        worker.api_key = named.api_key
        log.info("worker %s was added, named by %s", worker.url, sources)
        self._came(worker)
        self._start(worker)
        return worker

    async def _take_out(self, urls: Iterable[str]) -> list[Worker]:
        """Take out those that are there, all at once; the workers that were."""
        gone = [
            worker for url in urls if (worker := self._pool.remove(url)) is not None
        ]
        tasks = [task for one in gone for task in self._tasks.pop(one.url, [])]
        for worker in gone:
            log.info("worker %s was taken out: %d requests of it go on", worker.url,
                     worker.inflight_requests)  # fmt: skip
            self._drained.discard(worker.url)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for worker in gone:
            self._went(worker)
            await asyncio.sleep(0)  # there may be hundreds
        return gone

    def _start(self, worker: Worker) -> None:
        if self._group is not None:  # else `run` will
            self._tasks[worker.url] = [
                self._group.create_task(self._keeper.keep(name, work))
                for name, work in self._work(worker).items()
            ]


def _is_new(named: Named, worker: Worker) -> bool:
    """Whether it is to be made anew: declared otherwise, or back before it answered."""
    if named.spec != worker.spec:
        return True
    return named.draining and worker.state is WorkerState.joining
