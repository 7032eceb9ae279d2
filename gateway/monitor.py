"""Contact with the workers: who they are, when they restarted, which feeds to follow.

One task per worker. It contacts until the worker answers, writes down what it said,
starts its feeds, and from then on looks again now and then. Health checks with rise
and fall counts are no business of this file: the pool judges by what requests meet.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

import aiohttp
import zmq

from gateway import contact
from gateway.config import Config
from gateway.contact import ContactFailed, WorkerFacts
from gateway.feeds import EventSockets
from gateway.models import Renderers
from kvindex.feed import FeedSettings
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.standing import FeedState
from router.pool import WorkerPool
from router.worker import DEFAULT_BLOCK_SIZE, Worker, WorkerState

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
RETRY_LIMIT_S = 10.0
REFRESH_S = 10.0
RANK_PINNING_ENGINES = ("vllm", "sglang")
DEFAULT_CACHE_BLOCKS = 8192
"""History of a worker that does not tell the size of its cache."""


class Monitor:
    """Keeps what the router knows of its workers up to date."""

    def __init__(
        self,
        config: Config,
        pool: WorkerPool,
        indexes: Indexes,
        renderers: Renderers,
        sockets: EventSockets,
        may_load: Callable[[], bool],
    ) -> None:
        """`may_load` tells whether renderers may still be loaded."""
        self._config = config
        self._pool = pool
        self._indexes = indexes
        self._renderers = renderers
        self._sockets = sockets
        self._may_load = may_load
        self._started_at: dict[str, float] = {}
        self.listings: dict[str, WorkerFacts] = {}
        """What each worker said last, by URL."""

    async def first_round(self, session: aiohttp.ClientSession) -> None:
        """One contact with each worker, side by side."""
        await asyncio.gather(*(self._try(session, w) for w in self._pool.workers))

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Keep in touch with one worker and follow its feeds, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            following: dict[int, tuple[str, asyncio.Task[None]]] = {}
            wait = FIRST_RETRY_S
            while True:
                for rank, endpoint in self._sources(worker).items():
                    before = following.get(rank)
                    if before is not None and before[0] == endpoint:
                        continue
                    if before is not None:  # a restart may move the publisher
                        before[1].cancel()
                    follow = self._follow(session, worker, rank, endpoint)
                    following[rank] = (endpoint, tasks.create_task(follow))
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))
                if await self._try(session, worker):
                    wait = REFRESH_S
                else:
                    wait = min(wait * 2, RETRY_LIMIT_S)

    async def _try(self, session: aiohttp.ClientSession, worker: Worker) -> bool:
        try:
            facts = await contact.ask(session, worker.spec, self._config.worker_api_key)
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
        if self._renderers.knows(facts.models):
            return
        if self._may_load():
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._renderers.learn, facts.models)
        else:
            self._renderers.refuse(facts.models)

    def _write_down(self, worker: Worker, facts: WorkerFacts) -> None:
        known = worker.url in self.listings
        self.listings[worker.url] = facts
        self._pool.listed(worker, facts.models)
        worker.engine = facts.engine
        worker.version = facts.version
        worker.block_size = facts.block_size or worker.block_size
        worker.cache_blocks = facts.cache_blocks or worker.cache_blocks
        ranks = set(self._sources(worker)) or {0}
        worker.ranks = tuple(sorted(ranks))
        worker.can_pin_ranks = facts.engine in RANK_PINNING_ENGINES
        for rank in worker.ranks:
            self._know(worker, rank, facts.block_size)
        self._note_start(worker, facts.started_at)
        if not known or worker.state is not WorkerState.ready:
            self._pool.answered(worker)

    def _sources(self, worker: Worker) -> dict[int, str]:
        """Rank to endpoint: as configured, else as the worker says."""
        if worker.spec.kv_events:
            return dict(worker.spec.kv_events)
        facts = self.listings.get(worker.url)
        return dict(facts.event_endpoints) if facts else {}

    def _know(self, worker: Worker, rank: int, block_size: int | None) -> None:
        """Open what is known of a rank; anew where it now has an event source."""
        has_source = rank in self._sources(worker)
        known = worker.knowledge.get(rank)
        if known is not None:
            if not has_source or known.feed.state is not FeedState.ESTIMATED:
                return
            known.feed.retire()
        worker.knowledge[rank] = Knowledge.open(
            model=worker.base_model or "",
            indexes=self._indexes,
            key=f"{worker.url} rank {rank}",
            clock=time.monotonic,
            capacity_blocks=worker.cache_blocks or DEFAULT_CACHE_BLOCKS,
            settings=FeedSettings(suspect_ttl_s=self._config.suspect_ttl),
            block_size=block_size or (None if has_source else DEFAULT_BLOCK_SIZE),
            has_source=has_source,
        )

    def _note_start(self, worker: Worker, started_at: float | None) -> None:
        if started_at is None:
            return
        before = self._started_at.get(worker.url)
        self._started_at[worker.url] = started_at
        if before is not None and started_at != before:
            for knowledge in worker.knowledge.values():
                knowledge.feed.restarted("the worker's process started anew")

    async def _follow(
        self, session: aiohttp.ClientSession, worker: Worker, rank: int, endpoint: str
    ) -> None:
        async def connection_lost() -> None:
            spec, key = worker.spec, self._config.worker_api_key
            self._note_start(worker, await contact.started_at(session, spec, key))

        feed = worker.knowledge[rank].feed
        log.info(
            "worker %s rank %d: following KV events at %s", worker.url, rank, endpoint
        )
        try:
            await self._sockets.follow(feed, endpoint, connection_lost)
        except zmq.ZMQError as error:
            log.error(
                "worker %s rank %d: cannot follow %s: %s",
                worker.url,
                rank,
                endpoint,
                error,
            )
