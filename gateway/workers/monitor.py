"""Contact with the workers: who they are, when they restarted, whether they answer.

One task per worker. It contacts until the worker answers, writes down what it said,
has its event sources followed, and from then on looks again now and then, at once where
an event connection is lost or back. Health checks with rise and fall counts are no
business of this file: the pool judges by what requests meet.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from weakref import WeakSet

import aiohttp
import msgspec

from gateway.events.ingest import Ingest
from gateway.events.slices import BLOCKS
from gateway.events.sources import Sources
from gateway.models import Renderers
from gateway.settings.config import Config, api_of
from gateway.workers import contact
from gateway.workers.contact import GENERIC, ContactFailed, WorkerFacts
from gateway.workers.engines.facts import count
from render.profile import PROFILES
from router.pool import WorkerPool
from router.worker import Worker, WorkerState

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
RETRY_LIMIT_S = 2.0
AT_ONCE = 64
"""So many that never answered are asked side by side: hundreds may come at a time."""
REFRESH_S = 7.0
"""A restart that nothing else shows is noticed, and looked into, within 10 s."""
OPTIONAL = 0.8
"""After so much of the first round a worker is known by the routes that answered."""
RANK_PINNING_ENGINES = ("vllm", "sglang")


class Monitor:
    """Keeps what the router knows of its workers up to date."""

    def __init__(
        self,
        config: Config,
        pool: WorkerPool,
        renderers: Renderers,
        ingest: Ingest,
        may_load: Callable[[], bool],
    ) -> None:
        """`may_load` tells whether renderers may still be loaded."""
        self._config = config
        self._pool = pool
        self._renderers = renderers
        self._ingest = ingest
        self._may_load = may_load
        self.facts: dict[str, WorkerFacts] = {}
        """What each worker said last, by URL."""
        self._tried = WeakSet[Worker]()
        self._newcomers = asyncio.Semaphore(AT_ONCE)
        self._loading = asyncio.Lock()

    def max_model_len(self, model: str) -> int | None:
        """The context length that workers list for a model: the shortest."""
        lengths = (
            count(entry, "max_model_len")
            for facts in self.facts.values()
            for entry in facts.listing
            if entry.get("id") == model
        )
        return min(filter(None, lengths), default=None)

    def sources(self, worker: Worker) -> Sources:
        """Where a worker's events come from."""
        return self._ingest.owners.sources(worker)

    async def first_round(
        self, session: aiohttp.ClientSession, within_s: float
    ) -> None:
        """One contact with each worker, side by side, and loading what they list."""
        workers = self._pool.workers
        await asyncio.gather(*(self._try(session, w, within_s) for w in workers))

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Keep in touch with one worker and follow its feeds, until cancelled."""
        look = asyncio.Event()
        failures = 0
        try:
            async with self._ingest.follow(session, worker, look.set) as following:
                while True:
                    following.settle(self.sources(worker))
                    retry = min(FIRST_RETRY_S * 2.0 ** min(failures, 10), RETRY_LIMIT_S)
                    known = worker.url in self.facts and not failures
                    wait = REFRESH_S if known else retry
                    if worker not in self._tried:  # it came while we run
                        look.set()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait * random.uniform(0.8, 1.2)):
                            await look.wait()
                    look.clear()
                    answered = await self._try(session, worker)
                    if answered == bool(failures):  # silent since now, or till now
                        worker.doubt()
                    failures = 0 if answered else failures + 1
        except Exception:
            for knowledge in worker.knowledge.values():
                knowledge.feed.disconnected("not followed, by a fault of the gateway")
                knowledge.feed.work(BLOCKS)
            raise

    async def _try(
        self,
        session: aiohttp.ClientSession,
        worker: Worker,
        within_s: float | None = None,
    ) -> bool:
        self._tried.add(worker)
        api_key = worker.api_key or self._config.worker_api_key
        api = worker.spec.api or api_of(self._config, worker.url)
        known = self.facts.get(worker.url)
        if api is None and known is not None and worker.state is WorkerState.ready:
            api = known.api
        turn = self._newcomers if known is None else contextlib.nullcontext()
        until = None
        if within_s is not None:
            until = asyncio.get_running_loop().time() + OPTIONAL * within_s
        try:
            async with asyncio.timeout(within_s), turn:
                facts = await contact.ask(session, worker.spec, api_key, api, until)
        except TimeoutError:
            self._unreachable(worker, "no answer in time")
            return False
        except ContactFailed as error:
            self._unreachable(worker, str(error))
            return False
        await self._load_models(facts)
        self._write_down(worker, facts)
        return True

    def _unreachable(self, worker: Worker, reason: str) -> None:
        if worker.state is WorkerState.joining and worker.reason != reason:
            worker.reason = reason
            log.warning("worker %s: no contact yet: %s", worker.url, reason)

    async def _load_models(self, facts: WorkerFacts) -> None:
        """Return once what can be loaded of them is, by whichever worker's word."""
        may = self._may_load()  # while it waits for another's, one may become ready
        async with self._loading:
            if self._renderers.knows(facts.models):
                return
            if may:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._renderers.learn, facts.models)
            else:
                self._renderers.refuse(facts.models)

    def _write_down(self, worker: Worker, facts: WorkerFacts) -> None:
        before = self.facts.get(worker.url)
        facts = _with_what_was_told(facts, before)
        if facts.trouble and facts.trouble != (before and before.trouble):
            log.warning("worker %s: %s", worker.url, facts.trouble)
        if before is not None and facts.sources != before.sources:
            worker.doubt()
        self.facts[worker.url] = facts
        self._pool.listed(worker, facts.models)
        engine = worker.engine = facts.engine or GENERIC
        if worker.spec.profile is None and engine in PROFILES:
            worker.profile = engine
        worker.api = facts.api or worker.api
        worker.version = facts.version or worker.version
        worker.block_size = facts.block_size or worker.block_size
        worker.cache_blocks = facts.cache_blocks or worker.cache_blocks
        worker.can_pin_ranks = engine in RANK_PINNING_ENGINES
        self._ingest.learn(worker, facts)
        if before is None or worker.state is not WorkerState.ready:
            self._pool.contacted(worker)


def _with_what_was_told(facts: WorkerFacts, before: WorkerFacts | None) -> WorkerFacts:
    """A route that fails now does not end what it told before."""
    engine = facts.engine or (before.engine if before else None) or GENERIC
    told = facts if facts.sources is not None or before is None else before
    return msgspec.structs.replace(
        facts,
        engine=engine,
        sources=told.sources,
        ranks=facts.ranks or told.ranks,
        drained=told.drained,
    )
