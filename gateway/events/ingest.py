"""All that brings KV events in: owners, sockets, fetching, and who notices silence."""

import asyncio
from collections.abc import Callable

import aiohttp

from gateway.events.drain import Drainer
from gateway.events.feeds import EventSockets
from gateway.events.following import Following
from gateway.events.listener import Listener
from gateway.events.owners import Owners
from gateway.events.silence import Silence
from gateway.events.slices import Slices
from gateway.events.sources import Bind
from gateway.events.topics import Topics
from gateway.settings.config import Config, event_topics
from gateway.workers.contact import WorkerFacts
from kvindex.feed import FeedSettings
from kvindex.index import Indexes
from router.pool import WorkerPool
from router.worker import Worker


class Ingest:
    """The event feeds of one gateway."""

    def __init__(
        self,
        config: Config,
        pool: WorkerPool,
        indexes: Indexes,
        *,
        consumes: bool = True,
    ) -> None:
        """For the workers of the pool; ConfigError for topics that are nobody's.

        Unless it `consumes`, feeds that allow one consumer only are another process's.
        """
        declared, bind = event_topics(config), config.kv_events_bind
        settings = FeedSettings(suspect_ttl_s=config.suspect_ttl)
        here = Bind(bind, frozenset(declared.values()), mine=consumes)
        self.owners = Owners(indexes, settings, here)
        self.silence = Silence(pool)
        slices = Slices()
        self._sockets = EventSockets(slices)
        self._drainer = Drainer(self.owners, slices, config.worker_api_key)
        self._looks: dict[str, Callable[[], None]] = {}
        self.listener: Listener | None = None
        self._pool = pool
        self._topics = topics = Topics(
            declared, [worker.url for worker in pool.workers]
        )
        if bind is not None and consumes:
            self.listener = Listener(
                bind,
                topics,
                pool=pool,
                owners=self.owners,
                sockets=self._sockets,
                look_at=self._look_at,
            )
            self.listener.expect_declared()

    def close(self) -> None:
        """Close every socket."""
        self._sockets.close()

    async def run(self) -> None:
        """What is done for all workers together, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.silence.run())
            if self.listener is not None:
                tasks.create_task(self.listener.run())

    def _look_at(self, worker: Worker) -> None:
        look = self._looks.get(worker.url)
        if look is not None:
            look()

    def learn(self, worker: Worker, facts: WorkerFacts) -> None:
        """What the worker said of itself: its ranks, sizes, sources and topics."""
        self.owners.learn(worker, facts)
        told = self._topics.tell(worker.url, self.owners.sources(worker).topics)
        if told and self.listener is not None:
            self.listener.topics_changed()

    def came(self, worker: Worker) -> None:
        """A worker was added: its events may come to the gateway's own socket."""
        self._topics.know(worker.url for worker in self._pool.workers)
        if self.listener is not None:
            self.listener.expect_declared()
            self.listener.topics_changed()

    def went(self, worker: Worker) -> None:
        """A worker was taken out, and its tasks have ended."""
        self._topics.know(worker.url for worker in self._pool.workers)
        self._looks.pop(worker.url, None)
        if self.listener is not None:
            self.listener.forget(worker)
            self.listener.topics_changed()
        self.owners.forget(worker)

    def follow(
        self,
        session: aiohttp.ClientSession,
        worker: Worker,
        look: Callable[[], None],
    ) -> Following:
        """What follows one worker's events; it calls `look` back to look at it.

        A connection of its own that is lost or back may be another process.
        """

        def doubted() -> None:
            worker.doubt()
            look()

        self._looks[worker.url] = look
        return Following(
            worker,
            sockets=self._sockets,
            fetch=lambda: self._drainer.follow(session, worker, doubted),
            look=doubted,
            nobodys=self._nobodys,
        )

    def _nobodys(self, topic: str) -> str:
        if self._topics.url(topic) is not None:
            return ""
        return f"its topic {topic!r} {self._topics.nobodys(topic)}"
