"""The tasks that follow one worker's event sources: one per publisher, or one drain.

They are kept in line with what is known of the worker; how each follows is in
`feeds.py` and `drain.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType

import msgspec
import zmq

from gateway.events.feeds import EventSockets
from gateway.events.silence import expect
from gateway.events.slices import BLOCKS
from gateway.events.sources import Sources
from gateway.workers.engines.facts import EventSource
from kvindex.feed import Feed
from router.worker import Worker

log = logging.getLogger(__name__)

NOTHING_COMES = "nothing comes to --kv-events-bind under its topic"
MOVED = "the worker publishes elsewhere now"


class _Followed(msgspec.Struct, frozen=True):
    """A publisher, the feed that it fills, and the task that does."""

    source: EventSource
    feed: Feed
    task: asyncio.Task[None]


class Following:
    """Follows one worker's events, as long as the context is open."""

    def __init__(
        self,
        worker: Worker,
        *,
        sockets: EventSockets,
        fetch: Callable[[], Coroutine[None, None, None]],
        look: Callable[[], None],
        nobodys: Callable[[str], str],
    ) -> None:
        """`fetch` follows a worker whose events are fetched, for all its ranks.

        `look` is called when it is time to see whether the worker restarted; `nobodys`
        tells why a topic that the worker told is not its own, "" if it is.
        """
        self._worker = worker
        self._sockets = sockets
        self._fetch = fetch
        self._look = look
        self._nobodys = nobodys
        self._tasks = asyncio.TaskGroup()
        self._followed: dict[int, _Followed] = {}
        self._draining: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Following":
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)

    def settle(self, sources: Sources) -> None:
        """See that each known feed is followed at its source, and nothing else."""
        knowledge = self._worker.knowledge
        for rank, followed in list(self._followed.items()):
            known = knowledge.get(rank)
            source = sources.by_rank.get(rank)
            feed = known.feed if known is not None else None
            if (followed.source, followed.feed) != (source, feed):
                followed.task.cancel()
                del self._followed[rank]
                if sources.listened and followed.feed is feed:
                    continue  # it is heard already where it publishes
                followed.feed.disconnected(MOVED)
                followed.feed.work(BLOCKS)
        for rank, source in sources.by_rank.items():
            if rank in knowledge and rank not in self._followed:
                feed = knowledge[rank].feed
                task = self._tasks.create_task(self._follow(rank, feed, source))
                self._followed[rank] = _Followed(source, feed, task)
        if sources.listened:
            why = next(filter(None, map(self._nobodys, sorted(sources.topics))), "")
            for known in knowledge.values():
                expect(known.feed, why or NOTHING_COMES)
        self._settle_drain(wanted=sources.drained and bool(knowledge))

    def _settle_drain(self, *, wanted: bool) -> None:
        if wanted and self._draining is None:
            self._draining = self._tasks.create_task(self._fetch())
        elif not wanted and self._draining is not None:
            self._draining.cancel()
            self._draining = None

    async def _follow(self, rank: int, feed: Feed, source: EventSource) -> None:
        url, endpoint = self._worker.url, source.endpoint
        log.info("worker %s rank %d: following KV events at %s", url, rank, endpoint)
        try:
            await self._sockets.follow(feed, source, self._look)
        except* zmq.ZMQError as group:
            error = group.exceptions[0]
            log.error(
                "worker %s rank %d: cannot follow %s: %s", url, rank, endpoint, error
            )
            feed.disconnected(f"cannot follow {endpoint}: {error}")
            feed.work(BLOCKS)
