"""What the workers say of their load, asked for again and again.

A worker that does not answer, or has no such route, is as loaded as the gateway's own
ledger says; what it said before expires (`router.load`). Nothing else becomes of it:
whether a worker works is no business of this file.
"""

import asyncio
import logging
import random
from collections.abc import Iterable

import aiohttp
import msgspec

from gateway.settings.config import Config
from gateway.workers.asking import Asker, Unanswered
from gateway.workers.contact import ENGINES
from gateway.workers.engines.facts import Engine
from router.load import LIVES_S, Load
from router.pool import WorkerPool
from router.worker import Worker, WorkerState

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=2, connect=1)
PAGE_BYTES = 4 * 1024 * 1024
LONG_BYTES = 128 * 1024
"""A longer page, as of many ranks, would hold up the loop: a thread reads it."""
UNTOLD_S = 30.0
"""A worker that has no such route is asked again after so long."""
LIVES_INTERVALS = 3.0
"""A report outlives so many questions that have no answer."""
UNREACHED = (WorkerState.joining, WorkerState.down)


class _Own(msgspec.Struct, frozen=True):
    """Requests of ours at a rank: those that may wait there, and all."""

    waiting: int
    in_all: int


NONE = _Own(0, 0)


class LoadWatch:
    """Asks workers for their load, each by a task of its own."""

    def __init__(self, config: Config, pool: WorkerPool) -> None:
        self._config = config
        self._pool = pool

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Ask one worker again and again, until cancelled; never if so configured."""
        interval = self._config.load_interval
        if not interval:
            await asyncio.get_running_loop().create_future()
        while True:
            wait_s = interval
            engine = ENGINES.get(worker.engine or "")
            if engine is not None and worker.state not in UNREACHED:
                api_key = worker.api_key or self._config.worker_api_key
                asker = Asker(session, worker.url, api_key, timeout=TIMEOUT)
                told = await self._ask(asker, engine, worker)
                wait_s = interval if told else max(interval, UNTOLD_S)
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))

    async def _ask(self, asker: Asker, engine: Engine, worker: Worker) -> bool:
        """False where it does not tell; True where it does, or may do later."""
        for route in engine.LOAD_ROUTES:
            own = _own(worker)
            try:
                page = await asker.get(route, PAGE_BYTES)
            except Unanswered as error:
                log.debug("worker %s: %s", worker.url, error)
                return True
            if len(page.body) > LONG_BYTES:
                loads = await asyncio.to_thread(engine.load, page)
            else:
                loads = engine.load(page)
            known = {rank: loads[rank] for rank in worker.ranks if rank in loads}
            if known:
                self._write_down(worker, route.partition("?")[0], own, known)
                return True
        return False

    def _write_down(
        self,
        worker: Worker,
        source: str,
        own: dict[int, _Own],
        loads: dict[int, Load],
    ) -> None:
        lives_s = max(LIVES_S, LIVES_INTERVALS * self._config.load_interval)
        if not worker.reports:
            log.info("worker %s tells its load at %s", worker.url, source)
        ours = _larger(own, _own(worker))
        if not worker.can_pin_ranks:
            ours = _spread(ours.values(), loads)
        for rank, load in loads.items():
            mine = ours.get(rank, NONE)
            self._pool.reported(
                worker,
                rank,
                load,
                own=mine.waiting,
                own_in_all=mine.in_all,
                source=source,
                lives_s=lives_s,
            )


def _own(worker: Worker) -> dict[int, _Own]:
    """Our requests there, by rank."""
    return {
        rank: _Own(ledger.prefills, ledger.requests)
        for rank, ledger in worker.ledgers.items()
    }


def _larger(before: dict[int, _Own], now: dict[int, _Own]) -> dict[int, _Own]:
    """Those that may have been there when it looked.

    Ours may be prefilled, or end, while the answer is under way: no other's either way.
    """
    pairs = {
        rank: (before.get(rank, NONE), now.get(rank, NONE)) for rank in before | now
    }
    return {
        rank: _Own(max(one.waiting, two.waiting), max(one.in_all, two.in_all))
        for rank, (one, two) in pairs.items()
    }


def _spread(ours: Iterable[_Own], loads: dict[int, Load]) -> dict[int, _Own]:
    """Which ranks ours are at is not known: they are wherever there are requests."""
    waiting = in_all = 0
    for own in ours:
        waiting, in_all = waiting + own.waiting, in_all + own.in_all
    found = {}
    for rank, load in loads.items():
        here = _Own(
            min(waiting, load.waiting), min(in_all, load.waiting + load.running)
        )
        waiting, in_all = waiting - here.waiting, in_all - here.in_all
        found[rank] = here
    return found
