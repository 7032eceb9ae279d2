"""Drives one engine on the event loop: a single timer, however many requests run."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from simworker.cache import BlockCache
from simworker.engine import Engine
from simworker.job import Job


class Generation:
    """The jobs of one HTTP request, and the wait for their tokens."""

    def __init__(self, jobs: Sequence[Job], *, every_token: bool) -> None:
        self.jobs = jobs
        self._every_token = every_token
        self._changed = asyncio.Event()
        self.stopped = False

    def stop(self) -> None:
        """Wait no longer: it was aborted."""
        self.stopped = True
        self._changed.set()

    @property
    def finished(self) -> bool:
        """All jobs are done."""
        return all(job.finished for job in self.jobs)

    async def changed(self) -> None:
        """Wait for new tokens; for the end of all if not `every_token`."""
        await self._changed.wait()
        self._changed.clear()

    def notify(self) -> None:
        """A job of this request got tokens."""
        if self._every_token or self.finished:
            self._changed.set()


class Runner:
    """Keeps `engine` in step with the clock and hands tokens to who waits for them."""

    def __init__(
        self, engine: Engine, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.engine = engine
        self.aborted = 0
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def generate(
        self, jobs: Sequence[Job], *, every_token: bool
    ) -> AsyncIterator[Generation]:
        """Run `jobs`; leaving the context early aborts what has not finished.

        Raises ValueError for a job that could never fit the cache.
        """
        generation = Generation(jobs, every_token=every_token)
        try:
            for job in jobs:
                job.on_progress = generation.notify
                self.engine.submit(job, self._clock())
            self._set_timer()
            yield generation
        finally:
            unfinished = [job for job in jobs if not job.finished]
            for job in unfinished:
                self.engine.abort(job, self._clock())
            if unfinished:
                self.aborted += 1
                self._set_timer()

    def restart(self, cache: BlockCache) -> None:
        """Go on with an empty cache; what runs starts over."""
        self.engine.restart(cache, self._clock())
        self._set_timer()

    def catch_up(self) -> None:
        """Let everything happen that is due."""
        self.engine.advance(self._clock())
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.engine.next_time()
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - self._clock()), self._turn)

    def _turn(self) -> None:
        self._timer = None
        self.catch_up()

    def stop(self) -> None:
        """Nothing happens any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
