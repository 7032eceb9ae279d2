"""What happens now and then: feeds' clocks, the index's sweeps, memory, loop's lag."""

import asyncio
import time

from gateway import memory
from gateway.metrics.registry import Metrics
from kvindex.index import Indexes
from router.blockers import BlockerLog
from router.pool import WorkerPool

TICK_S = 1.0
LAG_PERIOD_S = 0.1
SWEEP_S = 0.001
"""How long the index is swept at a time."""
SWEEP_BLOCKS = 16
"""Blocks swept between two looks at the clock: mostly 10 us. But what was stored at
times lies scattered, so the last blocks of an owner return most of its memory to the
system: a quarter of a millisecond each."""
GIVE_BACK_S = 60.0
GIVE_BACK_SHARE = 1e-4
"""How often freed memory is given back, and what share of the time that may take."""


def sweep(indexes: Indexes) -> bool:
    """Sweep for a while; True where some is left."""
    end = time.monotonic() + SWEEP_S
    while indexes.sweep(SWEEP_BLOCKS):
        if time.monotonic() >= end:
            return True
    return False


class Housekeeping:
    """Periodic work of one gateway."""

    def __init__(
        self,
        pool: WorkerPool,
        indexes: Indexes,
        metrics: Metrics,
        blockers: BlockerLog,
    ) -> None:
        self._blockers = blockers
        self._pool = pool
        self._indexes = indexes
        self._metrics = metrics

    async def run(self) -> None:
        """Tick the feeds and sweep the index, look at blockers, until cancelled."""
        while True:
            self._blockers.look()
            for worker in self._pool.workers:
                for knowledge in list(worker.knowledge.values()):
                    while knowledge.feed.tick():  # noqa: ASYNC110 - as below
                        await asyncio.sleep(0)
                await asyncio.sleep(0)
            while sweep(self._indexes):  # noqa: ASYNC110 - work in slices
                await asyncio.sleep(0)
            await asyncio.sleep(TICK_S)

    async def give_back(self) -> None:
        """Return freed memory to the system, in a thread, until cancelled."""
        pause = GIVE_BACK_S
        while True:
            await asyncio.sleep(pause)
            begun = time.monotonic()
            await asyncio.to_thread(memory.give_back)
            pause = max(GIVE_BACK_S, (time.monotonic() - begun) / GIVE_BACK_SHARE)

    async def watch_loop(self) -> None:
        """Observe how late the event loop's timers fire, until cancelled."""
        observe = self._metrics.event_loop_lag_seconds.observe
        while True:
            due = time.monotonic() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            observe(max(0.0, time.monotonic() - due))
