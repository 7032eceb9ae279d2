"""Admission: whether a request may go to a worker now, waits a little, or is refused.

The measure is what the workers that may answer it have to prefill: uncached prompt
tokens in flight, on average. Without a limit (the default) nothing waits and nothing is
refused; engines have queues of their own. It chooses no worker.
"""

import asyncio
from collections import Counter

from gateway.errors import Overloaded
from gateway.metrics.registry import Metrics
from gateway.request.fair_queue import FairQueue
from gateway.settings.proxy_config import ProxyConfig
from router.pool import WorkerPool
from router.request import RouteRequest

LOOK_S = 0.02
"""How often it is looked whether one that waits fits; prefills end without a word."""
FULL = "queue_full"
TOO_LONG = "too_long"


class Admission:
    """Lets requests pass; belongs to one event loop.

    Where several clients wait their turns go round, and each client's requests pass in
    the order they came.
    """

    def __init__(self, config: ProxyConfig, pool: WorkerPool, metrics: Metrics) -> None:
        self._config = config
        self._pool = pool
        self._metrics = metrics
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._models = Counter[str | None]()
        """How many wait for each model."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return len(self._queue)

    async def admit(self, route: RouteRequest, client: str | None = None) -> None:
        """Return when a client's request may go; Overloaded where it may not in time.

        Also where others have waited for less than this client when the queue is full.
        """
        if self._config.max_inflight_tokens is None:
            return
        if self._fits(route.model) and not self._anybody_before(route.model):
            return
        self._make_room(client)
        waiting = _Waiting(route.model)
        self._queue.add(client, waiting)
        self._models[route.model] += 1
        self._look_later(LOOK_S)
        try:
            async with asyncio.timeout(self._config.queue_timeout):
                await waiting.admitted
            self._queue.served(client, waiting)
        except TimeoutError:
            raise self._refusal(TOO_LONG, "no worker had room in time") from None
        finally:  # until here it waits, so that nobody who comes now is ahead of it
            self._queue.discard(client, waiting)
            self._models[route.model] -= 1
            self._models += Counter()  # forgets models that nobody waits for

    def _anybody_before(self, model: str | None) -> bool:
        """Whether one that waits may go to a worker for this model, too: it is first.

        What its own workers have no room for holds up nobody.
        """
        if not self._models:
            return False
        workers = set(self._pool.candidates(model))
        return any(
            self._fits(waiting)
            and not workers.isdisjoint(self._pool.candidates(waiting))
            for waiting in self._models
        )

    def _make_room(self, client: str | None) -> None:
        """Refuse the last of whoever has most that wait: maybe this very one."""
        if len(self._queue) < self._config.max_queue:
            return
        last = self._queue.last_of_longest(client)
        if last is None:
            raise self._full()
        greedy, waiting = last
        self._queue.discard(greedy, waiting)
        if not waiting.admitted.done():
            waiting.admitted.set_exception(self._full())

    def _full(self) -> Overloaded:
        return self._refusal(FULL, "as many requests wait as may")

    def _fits(self, model: str | None) -> bool:
        """Whether the workers for a model have less in flight than they may.

        Also where there is none: that is not for this file to say.
        """
        limit = self._config.max_inflight_tokens
        workers = self._pool.candidates(model)
        if limit is None or not workers:
            return True
        tokens = sum(worker.inflight_tokens for worker in workers)
        return tokens < limit * len(workers)

    def _look(self) -> None:
        """Admit the first that fits; the next one once that is on its way."""
        self._timer = None
        full: set[str | None] = set()
        for _, waiting in self._queue.in_turn():
            if waiting.admitted.done() or waiting.model in full:
                continue
            if self._fits(waiting.model):
                waiting.admitted.set_result(None)
                self._look_later(0)
                return
            full.add(waiting.model)
        if self._queue:
            self._look_later(LOOK_S)

    def _look_later(self, seconds: float) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._look)

    def _refusal(self, reason: str, text: str) -> Overloaded:
        self._metrics.refused.labels(reason).inc()
        return Overloaded(f"the workers are at their limit, and {text}")


class _Waiting:
    """One request that waits."""

    def __init__(self, model: str | None) -> None:
        self.model = model
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
