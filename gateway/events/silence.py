"""Feeds that should say something and do not: what is likely to be the cause.

A feed is silent where requests stored blocks and no event came: kvindex says so, once,
with the cause it was given. Here that is repeated once a minute. So is a worker without
event source among others that have events, if its engine can send any; else once.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterator

from gateway.workers.contact import ENGINES
from kvindex.feed import Feed
from kvindex.standing import NO_SOURCE, FeedState
from router.pool import WorkerPool
from router.worker import Worker

log = logging.getLogger(__name__)

CHECK_S = 1.0
REPEAT_S = 60.0
"""What is silent still is said again after so long."""
MISSING_AFTER_S = 10.0
"""So long a worker may be without event source while others have events."""


def expect(feed: Feed, cause: str) -> None:
    """Should nothing come by this feed, that would be the likely cause."""
    feed.likely_cause = f"no events though requests stored blocks: {cause}"


def flags(worker: Worker) -> str:
    """What to look at where a worker publishes nothing."""
    engine = ENGINES.get(worker.engine or "")
    return engine.NO_EVENTS if engine else "it publishes none, or see --kv-events"


class Silence:
    """Watches all feeds of a fleet; `_missing`: those without source, when named."""

    def __init__(
        self, pool: WorkerPool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` is that of the feeds."""
        self._pool = pool
        self._clock = clock
        self._said_at: dict[Hashable, float] = {}
        self._missing: dict[Hashable, float] = {}

    async def run(self) -> None:
        """Check once a second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    def check(self) -> None:
        """Warn about what is silent now, and was not a minute ago."""
        now, still = self._clock(), dict[Hashable, float]()
        for worker, rank, feed in self._feeds():
            if feed.state is not FeedState.SILENT:
                continue
            # That a feed fell silent was said when it did.
            still[feed.key] = self._said_at.get(feed.key, now)
            if now - still[feed.key] >= REPEAT_S:
                still[feed.key] = now
                _warn(worker, rank, f"still {feed.reason}")
        self._said_at = still
        self._look_for_missing()

    def _look_for_missing(self) -> None:
        """Say of a feed that it has no source, where others have events."""
        estimated, others = dict[Hashable, tuple[Worker, int, Feed]](), False
        for worker, rank, feed in self._feeds():
            others = others or feed.last_sequence is not None
            if feed.state is FeedState.ESTIMATED:
                estimated[feed.key] = worker, rank, feed
        kept = self._missing.items()
        self._missing = {key: at for key, at in kept if key in estimated}
        now = self._clock()
        for key, (worker, rank, feed) in estimated.items() if others else ():
            said_at = self._missing.get(key)
            if said_at is None:
                due = now - feed.since >= MISSING_AFTER_S
            else:
                due = now - said_at >= REPEAT_S and worker.engine in ENGINES
            if due:
                self._missing[key] = now
                why = flags(worker) if feed.reason == NO_SOURCE else feed.reason
                _warn(worker, rank, f"has no KV events, unlike others: {why}")

    def _feeds(self) -> Iterator[tuple[Worker, int, Feed]]:
        for worker in self._pool.workers:
            for rank, known in worker.knowledge.items():
                yield worker, rank, known.feed


def _warn(worker: Worker, rank: int, text: str) -> None:
    log.warning("worker %s rank %d: %s", worker.url, rank, text)
