"""Rendering off the event loop: threads, a bounded queue, a deadline.

The renderer itself is the render room's; this is where a request waits for it, and
where "late" becomes "routed without ids" (never an error).
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from gateway.metrics import Metrics
from render import Unrenderable

log = logging.getLogger(__name__)
T = TypeVar("T")

LATE = "deadline"
FULL = "queue_full"
TOO_LARGE = "too_large"
FAILED = "internal_error"


class NotRendered(Exception):
    """A request that is routed without ids; `reason` is a label of a fixed set."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RenderPool:
    """Renders in threads; at most `queue` requests wait, for at most `deadline` s."""

    def __init__(
        self,
        *,
        threads: int,
        queue: int,
        deadline: float,
        max_bytes: int,
        metrics: Metrics,
    ) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="render")
        self._limit = queue
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._outstanding = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T], size: int) -> T:
        """`work` on a body of `size` bytes, done in a thread; raises NotRendered.

        `work` may raise Unrenderable or NotRendered.
        """
        if size > self._max_bytes:
            raise NotRendered(TOO_LARGE)
        if self._outstanding >= self._limit:
            raise NotRendered(FULL)
        self._count(+1)
        # A late rendering goes on in its thread and counts until it ends: a
        # queue of hopeless work is what the bound is for.
        running = self._executor.submit(work)
        running.add_done_callback(lambda _: self._count(-1))
        try:
            return await self._result(running)
        except NotRendered:
            raise
        except Unrenderable as error:
            raise NotRendered(error.reason) from None
        except asyncio.CancelledError:
            raise
        except Exception:
            # A fault of ours must not cost the client its answer (design, law 2).
            log.exception("rendering failed; the request is routed without ids")
            self._metrics.errors.labels("render").inc()
            raise NotRendered(FAILED) from None

    async def _result(self, running: Future[T]) -> T:
        try:
            async with asyncio.timeout(self._deadline):
                return await asyncio.wrap_future(running)
        except TimeoutError:
            # On a busy machine the loop may be later than the rendering: it counts.
            if running.done() and not running.cancelled():
                return running.result()
            raise NotRendered(LATE) from None

    def _count(self, change: int) -> None:
        with self._lock:
            self._outstanding += change

    @property
    def outstanding(self) -> int:
        """Renderings queued or running, late ones included."""
        return self._outstanding

    def close(self) -> None:
        """Stop taking work; what still runs is left to end by itself."""
        self._executor.shutdown(wait=False, cancel_futures=True)
