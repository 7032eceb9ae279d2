"""Health checks: whether a worker's server answers at all, beside all requests.

What becomes of a worker by them is `router.states`' business. A check that fails while
the worker's answers go on is none: a server may be too busy for it, and is not dead.
Nor is one that gets no answer while the worker may well be at a long prefill: some
servers answer only between two steps of the engine. What was sent to it when the first
got no answer tells for how long, and nothing that is sent later.
"""

import asyncio
import random

import aiohttp

from gateway.metrics.registry import Metrics
from gateway.settings.config import Config
from gateway.workers.asking import reason
from gateway.workers.contact import ENGINES
from router.pool import WorkerPool
from router.worker import Worker, WorkerState

ROUTES = ("/health",)
"""Of a server whose engine is not known."""
NOT_FOUND = 404
SOON_S = 1.0
"""Between the checks of a worker that failed."""
FAILING = 500
"""A worker without the route answers it, too: with less."""


class HealthChecks:
    """Checks workers, each by a task of its own."""

    def __init__(self, config: Config, pool: WorkerPool, metrics: Metrics) -> None:
        self._config = config
        self._pool = pool
        self._metrics = metrics

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Check one worker again and again, until cancelled; never if so configured."""
        if not self._config.health_interval:
            await asyncio.get_running_loop().create_future()
        while True:
            await asyncio.sleep(self._wait_s(worker) * random.uniform(0.8, 1.2))
            await self._look(session, worker)
            self._pool.rank(worker)  # a stall is seen without a request, too

    async def _look(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Check it once."""
        beats = worker.pulse.beats
        try:
            async with asyncio.timeout(self._config.health_timeout):
                failure = await self._failure(session, worker)
        except TimeoutError as error:
            if worker.excused:
                return
            failure = reason(error)
        except (aiohttp.ClientError, OSError) as error:
            failure = reason(error)
        if failure is None or worker.pulse.beats == beats:
            self._note(worker, failure)

    def _wait_s(self, worker: Worker) -> float:
        interval = self._config.health_interval
        fine = worker.state in (WorkerState.ready, WorkerState.draining)
        if fine and worker.checks >= 0:
            return interval
        return min(interval, SOON_S)

    async def _failure(
        self, session: aiohttp.ClientSession, worker: Worker
    ) -> str | None:
        """What is wrong by the best route that it has; None: nothing is."""
        engine = ENGINES.get(worker.engine or "")
        status, asked = NOT_FOUND, ""
        for route in ROUTES if engine is None else engine.HEALTH_ROUTES:
            if status == NOT_FOUND:
                status, asked = await self._status(session, worker, route), route
        return f"{asked} answers {status}" if status >= FAILING else None

    async def _status(
        self, session: aiohttp.ClientSession, worker: Worker, route: str
    ) -> int:
        api_key = worker.api_key or self._config.worker_api_key
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        url = worker.url + route
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            return response.status

    def _note(self, worker: Worker, failure: str | None) -> None:
        result = "passed" if failure is None else "failed"
        self._metrics.health_checks.labels(worker.url, result).inc()
        config = self._config
        self._pool.checked(
            worker, failure, rise=config.health_rise, fall=config.health_fall
        )
