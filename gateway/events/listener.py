"""The gateway's own event socket: publishers connect to it, topics tell them apart.

Each (worker of the topic, rank in the batch) is a stream. Whose topic it is is known to
`topics.py`; that two publishers share one, `publishers.py` notices. Whose connection is
lost is known once it has brought a batch; of a worker that is out of order, too, events
may be missed.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence, Set

import zmq

from gateway.events.claims import Claims, degrade
from gateway.events.connections import Connections
from gateway.events.feeds import IDLE_MS, EventSockets, decode_live
from gateway.events.owners import Owners
from gateway.events.publishers import Publishers
from gateway.events.slices import BLOCKS
from gateway.events.strangers import Strangers
from gateway.events.stream import Stream
from gateway.events.topics import Topics, name_of
from gateway.events.turns import Batch
from kvindex.events import UndecodableBatch
from kvindex.wire.batches import rank_of
from router.pool import WorkerPool
from router.states import OUT_OF_ORDER
from router.worker import Worker

log = logging.getLogger(__name__)

REBIND_S = 5.0
SHARED = "two publishers share its topic; none of their events counts"
LEFT = "of two publishers of its topic the other is left"
LOST = "connection lost"


class Listener:
    """One bound SUB socket and the streams that come to it."""

    def __init__(
        self,
        endpoint: str,
        topics: Topics,
        *,
        pool: WorkerPool,
        owners: Owners,
        sockets: EventSockets,
        look_at: Callable[[Worker], None],
    ) -> None:
        """`look_at` is called for workers that may have restarted."""
        self.endpoint = endpoint
        self._topics = topics
        self._claims = Claims(topics)
        self._pool = pool
        self._owners = owners
        self._sockets = sockets
        self._look_at = look_at
        self._heard: dict[str, Worker] = {}
        self._strangers = Strangers()
        self._fed: set[Stream] = set()
        """Streams whose feeds were given something."""
        self._publishers: dict[Stream, Publishers] = {}
        self._waiting: set[Stream] = set()
        """Streams with batches that wait until all is taken."""
        self._told: set[Stream] = set()
        """Those of two publishers, until one of these is gone."""
        self._streams: dict[tuple[str, int], Stream] = {}
        self._out_of_order: set[str] = set()
        self._ports: set[int] = set()
        """Those that were bound, or could not be."""

    def expect_declared(self) -> None:
        """Workers whose topics are declared have their events here, come or not."""
        for url in self._topics.declared.values():
            worker = self._pool.get(url)
            if worker is not None:
                self._owners.listen(worker)

    def forget(self, worker: Worker) -> None:
        """The worker is gone."""
        self._heard.pop(worker.url, None)
        self._out_of_order.discard(worker.url)
        for key in [key for key in self._streams if key[0] == worker.url]:
            self._forget(self._streams.pop(key))

    def _forget(self, stream: Stream) -> None:
        self._publishers.pop(stream, None)
        self._claims.forget(stream)
        for streams in (self._fed, self._waiting, self._told):
            streams.discard(stream)

    async def run(self) -> None:
        """Bind, and hand what comes to the feeds, until cancelled."""
        connections = Connections(self._sockets.context)
        try:
            await self._bind(connections)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connections.admit())
                tasks.create_task(self._drain(connections, tasks))
                tasks.create_task(self._mind(connections))
        finally:
            self._streams.clear()
            self._publishers.clear()
            connections.close()

    async def _bind(self, connections: Connections) -> None:
        """Bind, as soon as no other process has the port."""
        for attempt in itertools.count():
            try:
                self.endpoint = connections.bind(self.endpoint)
                break
            except zmq.ZMQError as error:
                if attempt == 0:
                    log.error(
                        "cannot listen for KV events at %s: %s", self.endpoint, error
                    )
            await asyncio.sleep(REBIND_S)
        log.info("listening for KV events at %s", self.endpoint)

    async def _drain(self, connections: Connections, tasks: asyncio.TaskGroup) -> None:
        settled = time.monotonic()

        def take(connection: int, frames: Sequence[bytes]) -> None:
            self._take(connection, frames, tasks)

        while True:
            await connections.wait(IDLE_MS)
            async with self._sockets.slices.turn() as end:
                if connections.receive(take, end):
                    self._all_taken(connections.lost())
            # By the clock: other publishers may never leave the socket idle.
            if time.monotonic() - settled >= IDLE_MS / 1000:
                settled = time.monotonic()
                for stream, publishers in self._publishers.items():
                    self._hand_on(stream, publishers.settle(settled))
                    if why := self._ill(stream):  # whatever else said it is well
                        stream.feed.disconnected(why)
            while self._fed:
                await self._fed.pop().work()
            await asyncio.sleep(0)

    def _all_taken(self, lost: Sequence[int]) -> None:
        """All that came by these is taken: what waits for that may count."""
        if lost:
            for (url, _), stream in self._streams.items():
                self._lose(stream, self._heard[url], frozenset(lost))
        while self._waiting:
            stream = self._waiting.pop()
            if (waiting := self._publishers.get(stream)) is not None:
                self._hand_on(stream, waiting.quiet(time.monotonic()))

    def _lose(self, stream: Stream, worker: Worker, lost: Set[int]) -> None:
        publishers = self._publishers[stream]
        missed = publishers.closed(lost)
        self._hand_on(stream, publishers.settle(time.monotonic()))
        if not publishers.shared:
            self._told.discard(stream)
        if missed:
            stream.feed.disconnected(LOST)
            self._look_at(worker)  # it may have restarted

    async def _mind(self, connections: Connections) -> None:
        """Doubt the feeds of workers that do not work; there is no other sign of it.

        And bind the ports of their further ranks.
        """
        own = self.endpoint.rpartition(":")[2]
        self._ports = {int(own)} if own.isdecimal() else set()
        while True:
            for worker in self._pool.workers:
                sources = self._owners.sources(worker)
                for port in set(sources.ports) - self._ports:
                    self._bind_too(connections, port)
                out = worker.state in OUT_OF_ORDER
                if sources.listened and out != (worker.url in self._out_of_order):
                    self._out_of_order ^= {worker.url}
                    self._doubt(worker, out)
            await asyncio.sleep(IDLE_MS / 1000)

    def _bind_too(self, connections: Connections, port: int) -> None:
        """Data-parallel rank r connects to the port of rank 0 plus r."""
        self._ports.add(port)
        endpoint = f"{self.endpoint.rpartition(':')[0]}:{port}"
        try:
            connections.bind(endpoint)
        except zmq.ZMQError as error:
            log.error("cannot listen for KV events at %s: %s", endpoint, error)
        else:
            log.info("listening for KV events at %s, too", endpoint)

    def _doubt(self, worker: Worker, out: bool) -> None:
        for rank, known in worker.knowledge.items():
            stream = self._streams.get((worker.url, rank))
            if out:
                why = f"its worker is {worker.state}: {worker.reason}"
                known.feed.disconnected(why)
            elif stream is None or not self._ill(stream):
                known.feed.connected()
            if stream is not None and stream.feed is known.feed:
                self._fed.add(stream)
            else:
                known.feed.work(BLOCKS)

    def _ill(self, stream: Stream) -> str:
        """Why none of its events counts; "" if they do."""
        shared = self._publishers[stream].shared
        return self._claims.lost(stream) or (SHARED if shared else "")

    def topics_changed(self) -> None:
        """Workers came, went, or told other topics: some may be another's now."""
        for stream, url in self._claims.changed():
            if why := self._ill(stream):
                degrade(stream.feed, why)
            elif url not in self._out_of_order:
                stream.feed.connected()
                self._look_at(self._heard[url])  # it may have restarted meanwhile
            stream.feed.work(BLOCKS)
            self._fed.add(stream)

    def _take(
        self, connection: int, frames: Sequence[bytes], tasks: asyncio.TaskGroup
    ) -> None:
        try:
            topic, sequence, payload = decode_live(frames)
        except UndecodableBatch as error:
            why = f"sends what is no batch: {error}"
            self._strangers.note(self.endpoint, frames[0], why)
            return
        worker = self._worker(topic)
        if worker is None:
            return
        stream = self._stream(worker, rank_of(payload), tasks)
        if stream is not None:
            if self._claims.came(stream, worker.url, name_of(topic)):
                stream.feed.connected()
            publishers, now = self._publishers[stream], time.monotonic()
            self._hand_on(stream, publishers.take(connection, sequence, payload, now))
            if publishers.waits:
                self._waiting.add(stream)

    def _hand_on(self, stream: Stream, batches: Iterator[Batch]) -> None:
        """Give the feed what is one publisher's."""
        publishers, feed = self._publishers[stream], stream.feed
        shared = publishers.shared
        for batch in batches:
            self._reset(stream)
            feed.receive(*batch)
        self._reset(stream)
        if publishers.shared and not shared:
            if stream in self._told:
                feed.disconnected(SHARED)
            else:
                self._told.add(stream)
                degrade(feed, SHARED)
        self._fed.add(stream)

    def _reset(self, stream: Stream) -> None:
        publishers = self._publishers[stream]
        if publishers.anew:
            publishers.anew = False
            stream.feed.restarted(LEFT)

    def _worker(self, topic: bytes) -> Worker | None:
        name = name_of(topic)
        url = self._topics.url(name)
        worker = self._pool.get(url) if url is not None else None
        if worker is None:
            why = self._topics.nobodys(name)
            self._strangers.note(self.endpoint, topic, why)
        elif worker.url not in self._heard:
            self._heard[worker.url] = worker
            self._owners.listen(worker)
            self._look_at(worker)  # what it told of its endpoint is not followed now
        return worker

    def _stream(
        self, worker: Worker, rank: int | None, tasks: asyncio.TaskGroup
    ) -> Stream | None:
        """The stream of one rank; None where the rank is none, or not known yet."""
        if rank is None:
            rank = worker.ranks[0]
        feed = self._owners.feed(worker, rank)
        if feed is None:
            return None
        stream = self._streams.get((worker.url, rank))
        if stream is None or stream.feed is not feed:
            endpoint = self._owners.sources(worker).replays.get(rank)
            sockets = self._sockets
            stream = Stream(feed, sockets.context, sockets.slices, endpoint, tasks)
            self._forget(self._streams.get((worker.url, rank), stream))
            self._streams[worker.url, rank] = stream
            self._publishers[stream] = Publishers()
        return stream
