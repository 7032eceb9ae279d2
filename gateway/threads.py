"""Work off the event loop: threads, a bounded queue, a deadline.

What a request does that found the queue full, or was late, is the caller's business.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class QueueFull(Exception):
    """As many works wait as may."""


class Late(Exception):
    """The work was not done by its deadline."""


class Threads:
    """Runs work in threads; at most `queue` of it, each for at most `deadline` s.

    What has begun has a place besides these.
    """

    def __init__(self, *, threads: int, queue: int, deadline: float) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="render")
        self._limit = queue
        self._deadline = deadline
        self._outstanding = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T], *, begun: bool = False) -> T:
        """What `work` returns or raises; raises QueueFull and Late.

        `begun`: it is a part of what was taken on already, one part at a time. It waits
        for its turn, and neither is raised.
        """
        if not begun and self._outstanding >= self._limit:
            raise QueueFull
        self._count(+1)
        # Late work goes on in its thread and counts until it ends: a queue of
        # hopeless work is what the bound is for.
        running = self._executor.submit(work)
        running.add_done_callback(lambda _: self._count(-1))
        try:
            return await self._result(running, None if begun else self._deadline)
        finally:
            del running  # as in `_result`

    async def _result(self, running: Future[T], deadline: float | None) -> T:
        try:
            async with asyncio.timeout(deadline):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            # On a busy machine the loop may be later than the work: it counts.
            if running.done() and not running.cancelled():
                return running.result()
            raise Late from None
        finally:
            # It has the error, whose traceback has this frame: all that the work had
            # would wait for the collector.
            del running

    def _count(self, change: int) -> None:
        with self._lock:
            self._outstanding += change

    @property
    def outstanding(self) -> int:
        """Work queued or running, late work included."""
        return self._outstanding

    def close(self) -> None:
        """Stop taking work; what still runs is left to end by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)
