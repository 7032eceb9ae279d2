"""Work that goes on beside the requests, whatever goes wrong in it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

from gateway.metrics.registry import ServerMetrics

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]
AFTER_FAULT_S = 1.0


class Keeper:
    """Keeps work going: a fault of ours in it is logged, and it starts anew."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics

    async def keep(self, name: str, work: Work) -> None:
        """Do `work` again and again, until cancelled."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("%s failed and starts anew", name)
                self._metrics.errors.labels("background").inc()
            await asyncio.sleep(AFTER_FAULT_S)


@contextlib.asynccontextmanager
async def running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """`work` as a task, cancelled at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
