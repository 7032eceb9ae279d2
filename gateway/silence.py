"""Feeds that should say something and do not: a warning with the likely cause.

A feed is silent where requests stored blocks and no event came; that is kvindex's to
say. A worker without event source is worth a line where others have one. At most one
line a minute about each, and one where events come after all.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterator

from gateway.contact import ENGINES
from kvindex.feed import Feed
from kvindex.standing import FeedState
from router.pool import WorkerPool
from router.worker import Worker

log = logging.getLogger(__name__)

CHECK_S = 1.0
REPEAT_S = 60.0
MISSING_AFTER_S = 10.0
"""So long a worker may be without event source while others have events."""


class Silence:
    """Watches all feeds of a fleet."""

    def __init__(
        self, pool: WorkerPool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` is that of the feeds."""
        self._pool = pool
        self._clock = clock
        self._causes: dict[Hashable, str] = {}
        self._warned: dict[Hashable, float] = {}

    def expect(self, feed: Feed, cause: str) -> None:
        """Should nothing come by this feed, that would be the likely cause."""
        self._causes[feed.key] = cause

    def cause(self, feed: Feed) -> str:
        """The likely cause where nothing comes; "" where events have come."""
        heard = feed.last_sequence is not None and feed.state is not FeedState.SILENT
        return "" if heard else self._causes.get(feed.key, "")

    async def run(self) -> None:
        """Check once a second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    def check(self) -> None:
        """Warn about what is silent now."""
        others = any(feed.last_sequence is not None for _, _, feed in self._feeds())
        present: set[Hashable] = set()
        for worker, rank, feed in self._feeds():
            present.add(feed.key)
            text = self._text(worker, feed, others=others)
            if text:
                self._warn(worker.url, rank, feed.key, text)
            elif feed.last_sequence is not None and self._warned.pop(feed.key, 0.0):
                log.info("worker %s rank %d: KV events arrive", worker.url, rank)
        for gone in set(self._causes).difference(present):
            del self._causes[gone]
        for gone in set(self._warned).difference(present):
            del self._warned[gone]

    def _feeds(self) -> Iterator[tuple[Worker, int, Feed]]:
        for worker in self._pool.workers:
            for rank, known in worker.knowledge.items():
                yield worker, rank, known.feed

    def _text(self, worker: Worker, feed: Feed, *, others: bool) -> str:
        if feed.state is FeedState.SILENT:
            cause = self._causes.get(feed.key) or _flags(worker)
            return f"no KV events though requests stored blocks; likely: {cause}"
        missing = feed.state is FeedState.ESTIMATED and others
        if missing and self._clock() - feed.since >= MISSING_AFTER_S:
            return f"has no KV events, other workers have; likely: {_flags(worker)}"
        return ""

    def _warn(self, url: str, rank: int, key: Hashable, text: str) -> None:
        last = self._warned.get(key)
        if last is None or self._clock() - last >= REPEAT_S:
            self._warned[key] = self._clock()
            log.warning("worker %s rank %d: %s", url, rank, text)


def _flags(worker: Worker) -> str:
    engine = ENGINES.get(worker.engine or "")
    return engine.NO_EVENTS if engine else "it publishes none, see --kv-events"
