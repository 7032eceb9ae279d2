"""Contact with the workers: who they are, when they restarted, which feeds to follow.

One task per worker. It contacts until the worker answers, writes down what it said,
follows its feeds, and from then on looks again now and then, at once where an event
connection is lost or back. Health checks with rise and fall counts are no business of
this file: the pool judges by what requests meet.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable

import aiohttp
import msgspec
import zmq

from gateway import contact
from gateway.config import Config
from gateway.contact import ContactFailed, WorkerFacts
from gateway.feeds import EventSockets
from gateway.models import Renderers
from kvindex.feed import Feed, FeedSettings
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.pages import indexed_size
from render.profile import PROFILES
from router.pool import WorkerPool
from router.worker import DEFAULT_BLOCK_SIZE, Worker, WorkerState

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.5
RETRY_LIMIT_S = 2.0
REFRESH_S = 10.0
RANK_PINNING_ENGINES = ("vllm", "sglang")
DEFAULT_CACHE_BLOCKS = 8192
"""History of a worker that does not tell the size of its cache."""


class _Start(msgspec.Struct, frozen=True):
    """A worker's process: its start, and the restarts its feeds had noticed by then."""

    at: float
    restarts: dict[Feed, int]


class _Following(msgspec.Struct, frozen=True):
    """An event socket at work."""

    endpoint: str
    feed: Feed
    task: asyncio.Task[None]


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
        self._starts: dict[str, _Start] = {}
        self._opened: dict[tuple[str, int], tuple[str, bool]] = {}
        """For which base model, and with events or not, each knowledge was opened."""
        self.facts: dict[str, WorkerFacts] = {}
        """What each worker said last, by URL."""

    def max_model_len(self, model: str) -> int | None:
        """The context length that workers list for a model: the shortest."""
        lengths = [
            entry.get("max_model_len")
            for facts in self.facts.values()
            for entry in facts.listing
            if entry.get("id") == model
        ]
        counts = [n for n in lengths if type(n) is int and n > 0]
        return min(counts, default=None)

    async def first_round(
        self, session: aiohttp.ClientSession, within_s: float
    ) -> None:
        """One contact with each worker, side by side, and loading what they list."""
        workers = self._pool.workers
        await asyncio.gather(*(self._try(session, w, within_s) for w in workers))

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Keep in touch with one worker and follow its feeds, until cancelled."""
        look = asyncio.Event()
        following: dict[int, _Following] = {}
        failures = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._follow_all(worker, following, look.set, tasks)
                    retry = min(FIRST_RETRY_S * 2.0 ** min(failures, 10), RETRY_LIMIT_S)
                    known = worker.url in self.facts and not failures
                    wait = REFRESH_S if known else retry
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait * random.uniform(0.8, 1.2)):
                            await look.wait()
                    look.clear()
                    answered = await self._try(session, worker)
                    failures = 0 if answered else failures + 1
        except Exception:
            for knowledge in worker.knowledge.values():
                knowledge.feed.disconnected("not followed, by a fault of the gateway")
            raise

    async def _try(
        self,
        session: aiohttp.ClientSession,
        worker: Worker,
        within_s: float | None = None,
    ) -> bool:
        api_key = self._config.worker_api_key
        try:
            async with asyncio.timeout(within_s):
                facts = await contact.ask(session, worker.spec, api_key)
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
        if self._renderers.knows(facts.models):
            return
        if self._may_load():
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._renderers.learn, facts.models)
        else:
            self._renderers.refuse(facts.models)

    def _write_down(self, worker: Worker, facts: WorkerFacts) -> None:
        before = self.facts.get(worker.url)
        if before is not None and facts.event_endpoints is None:
            facts = msgspec.structs.replace(
                facts, event_endpoints=before.event_endpoints
            )
        self.facts[worker.url] = facts
        self._pool.listed(worker, facts.models)
        worker.engine = facts.engine
        if worker.spec.profile is None and facts.engine in PROFILES:
            worker.profile = facts.engine
        worker.version = facts.version or worker.version
        worker.block_size = facts.block_size or worker.block_size
        worker.cache_blocks = facts.cache_blocks or worker.cache_blocks
        worker.can_pin_ranks = facts.engine in RANK_PINNING_ENGINES
        if facts.started_at is not None:
            self._note_start(worker, facts.started_at)
        told_before = before.block_size if before is not None else None
        changed = facts.block_size not in (None, told_before)
        self._know_all(worker, facts.block_size, size_changed=changed)
        if before is None or worker.state is not WorkerState.ready:
            self._pool.answered(worker)

    def _note_start(self, worker: Worker, started_at: float) -> None:
        """Tell the feeds of a new process, but those that noticed it themselves."""
        feeds = [known.feed for known in worker.knowledge.values()]
        before = self._starts.get(worker.url)
        if before is not None and started_at != before.at:
            for feed in feeds:  # one opened since then had noticed none
                if feed.counters.restarts == before.restarts.get(feed, 0):
                    feed.restarted("the worker's process started anew")
        restarts = {feed: feed.counters.restarts for feed in feeds}
        self._starts[worker.url] = _Start(started_at, restarts)

    def _sources(self, worker: Worker) -> dict[int, str]:
        """Rank to endpoint: as configured, else as the worker says."""
        if worker.spec.kv_events:
            return dict(worker.spec.kv_events)
        facts = self.facts.get(worker.url)
        return dict(facts.event_endpoints or {}) if facts else {}

    def _know_all(
        self, worker: Worker, block_size: int | None, *, size_changed: bool
    ) -> None:
        """Open what is to be known of each rank, forget ranks that are gone."""
        sources = self._sources(worker)
        ranks = tuple(sorted(sources)) or (0,)
        for rank in ranks:
            opened = (worker.base_model or "", rank in sources)
            if self._opened.get((worker.url, rank)) != opened:
                self._open(worker, rank, opened, block_size)
            elif size_changed and block_size is not None:
                worker.knowledge[rank].feed.use_block_size(block_size)
            capacity = _indexed_blocks(worker.cache_blocks, block_size)
            worker.knowledge[rank].history.capacity_blocks = capacity
        worker.ranks = ranks
        for rank in set(worker.knowledge).difference(ranks):
            del self._opened[worker.url, rank]
            worker.knowledge.pop(rank).feed.retire()

    def _open(
        self,
        worker: Worker,
        rank: int,
        opened: tuple[str, bool],
        block_size: int | None,
    ) -> None:
        model, has_source = opened
        known = worker.knowledge.get(rank)
        if known is not None:
            known.feed.retire()
        self._opened[worker.url, rank] = opened
        worker.knowledge[rank] = Knowledge.open(
            model=model,
            indexes=self._indexes,
            key=f"{worker.url} rank {rank}",
            clock=time.monotonic,
            capacity_blocks=DEFAULT_CACHE_BLOCKS,
            settings=FeedSettings(suspect_ttl_s=self._config.suspect_ttl),
            block_size=block_size or (None if has_source else DEFAULT_BLOCK_SIZE),
            has_source=has_source,
        )

    def _follow_all(
        self,
        worker: Worker,
        following: dict[int, _Following],
        look: Callable[[], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """See that each known feed is followed at its endpoint, and nothing else."""
        sources = self._sources(worker)
        for rank, known in worker.knowledge.items():
            endpoint, now = sources.get(rank), following.get(rank)
            if now is not None and (now.endpoint, now.feed) == (endpoint, known.feed):
                continue
            if now is not None:
                now.task.cancel()
                now.feed.disconnected("the worker publishes elsewhere now")
                del following[rank]
            if endpoint is not None:
                follow = self._follow(worker, rank, known.feed, endpoint, look)
                task = tasks.create_task(follow)
                following[rank] = _Following(endpoint, known.feed, task)
        for rank in set(following).difference(worker.knowledge):
            following.pop(rank).task.cancel()

    async def _follow(
        self,
        worker: Worker,
        rank: int,
        feed: Feed,
        endpoint: str,
        look: Callable[[], None],
    ) -> None:
        log.info(
            "worker %s rank %d: following KV events at %s", worker.url, rank, endpoint
        )
        try:
            await self._sockets.follow(feed, endpoint, look)
        except* zmq.ZMQError as group:
            error = group.exceptions[0]
            log.error(
                "worker %s rank %d: cannot follow %s: %s",
                worker.url,
                rank,
                endpoint,
                error,
            )
            feed.disconnected(f"cannot follow {endpoint}: {error}")


def _indexed_blocks(cache_blocks: int | None, block_size: int | None) -> int:
    """How many blocks of the index a worker's cache holds; small pages make fewer."""
    if cache_blocks is None:
        return DEFAULT_CACHE_BLOCKS
    if block_size is None:
        return cache_blocks
    return max(1, cache_blocks * block_size // indexed_size(block_size))
