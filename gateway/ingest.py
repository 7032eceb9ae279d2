"""All that brings KV events in: owners, sockets, fetching, and who notices silence."""

from collections.abc import Callable

import aiohttp

from gateway.config import Config
from gateway.drain import Drainer
from gateway.feeds import EventSockets
from gateway.following import Following
from gateway.owners import Owners
from gateway.silence import Silence
from kvindex.feed import FeedSettings
from kvindex.index import Indexes
from router.pool import WorkerPool
from router.worker import Worker


class Ingest:
    """The event feeds of one gateway."""

    def __init__(self, config: Config, pool: WorkerPool, indexes: Indexes) -> None:
        self.owners = Owners(indexes, FeedSettings(suspect_ttl_s=config.suspect_ttl))
        self.silence = Silence(pool)
        self._sockets = EventSockets(self.silence)
        self._drainer = Drainer(self.owners, self.silence, config.worker_api_key)

    def close(self) -> None:
        """Close every socket."""
        self._sockets.close()

    async def run(self) -> None:
        """What is done for all workers together, until cancelled."""
        await self.silence.run()

    def follow(
        self,
        session: aiohttp.ClientSession,
        worker: Worker,
        look: Callable[[], None],
    ) -> Following:
        """What follows one worker's events; it calls `look` back to look at it."""
        return Following(
            worker,
            sockets=self._sockets,
            fetch=lambda: self._drainer.follow(session, worker, look),
            look=look,
        )
