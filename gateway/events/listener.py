"""The gateway's own event socket: publishers connect to it, topics tell them apart.

Each (worker of the topic, rank in the batch) is a stream. Whose topic it is is known to
`topics.py`; that two publishers share one, `turns.py` notices. ZMQ does not tell whose
connection is lost, so all workers heard here are looked at then; of one that is out of
order, events may be missed.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from gateway.events.feeds import (
    DISCONNECTED,
    IDLE_MS,
    EventSockets,
    decode_live,
    prepare,
    receive_slice,
)
from gateway.events.owners import Owners
from gateway.events.slices import BLOCKS
from gateway.events.stream import Stream
from gateway.events.topics import Topics
from gateway.events.turns import Turns
from kvindex.events import UndecodableBatch
from kvindex.standing import FeedState
from kvindex.wire.batches import rank_of
from router.pool import WorkerPool
from router.states import OUT_OF_ORDER
from router.worker import Worker

log = logging.getLogger(__name__)

REBIND_S = 5.0
TOPIC_BYTES = 1_024
SHARED = "two publishers share its topic; none of their events counts"
STRANGERS = 100
"""Topics of nobody that get a line; there may be any number."""


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
        self._pool = pool
        self._owners = owners
        self._sockets = sockets
        self._look_at = look_at
        self._heard: dict[str, Worker] = {}
        self._strangers: set[bytes] = set()
        self._fed: set[Stream] = set()
        """Streams whose feeds were given something."""
        self._turns: dict[Stream, Turns] = {}
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
            stream = self._streams.pop(key)
            self._turns.pop(stream, None)
            self._fed.discard(stream)

    async def run(self) -> None:
        """Bind, and hand what comes to the feeds, until cancelled."""
        socket = self._sockets.context.socket(zmq.SUB)
        changes: zmq.asyncio.Socket | None = None
        try:
            prepare(socket)
            changes = socket.get_monitor_socket(DISCONNECTED)
            await self._bind(socket)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._drain(socket, tasks))
                tasks.create_task(self._watch(changes))
                tasks.create_task(self._mind(socket))
        finally:
            self._streams.clear()
            self._turns.clear()
            if not socket.closed:  # the context may have been first
                socket.disable_monitor()
            if changes is not None:
                changes.close(linger=0)
            socket.close(linger=0)

    async def _bind(self, socket: zmq.asyncio.Socket) -> None:
        """Bind, as soon as no other process has the port."""
        for attempt in itertools.count():
            try:
                socket.bind(self.endpoint)
                break
            except zmq.ZMQError as error:
                if attempt == 0:
                    log.error(
                        "cannot listen for KV events at %s: %s", self.endpoint, error
                    )
            await asyncio.sleep(REBIND_S)
        self.endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        log.info("listening for KV events at %s", self.endpoint)

    async def _drain(
        self, socket: zmq.asyncio.Socket, tasks: asyncio.TaskGroup
    ) -> None:
        plain: zmq.Socket[bytes] = zmq.Socket.shadow(socket)
        settled = time.monotonic()
        while True:
            came = await socket.poll(IDLE_MS)
            async with self._sockets.slices.turn() as end:
                receive_slice(plain, lambda frames: self._take(frames, tasks), end)
            # By the clock: other publishers may never leave the socket idle.
            if not came or time.monotonic() - settled >= IDLE_MS / 1000:
                settled = time.monotonic()
                self._settle()
            while self._fed:
                await self._fed.pop().work()
            await asyncio.sleep(0)

    async def _watch(self, changes: zmq.asyncio.Socket) -> None:
        while True:
            parse_monitor_message(await changes.recv_multipart())
            for worker in self._heard.values():
                self._look_at(worker)

    async def _mind(self, socket: zmq.asyncio.Socket) -> None:
        """Doubt the feeds of workers that do not work; there is no other sign of it.

        And bind the ports of their further ranks.
        """
        own = self.endpoint.rpartition(":")[2]
        self._ports = {int(own)} if own.isdecimal() else set()
        while True:
            for worker in self._pool.workers:
                sources = self._owners.sources(worker)
                for port in set(sources.ports) - self._ports:
                    self._bind_too(socket, port)
                out = worker.state in OUT_OF_ORDER
                if sources.listened and out != (worker.url in self._out_of_order):
                    self._out_of_order ^= {worker.url}
                    self._doubt(worker, out)
            await asyncio.sleep(IDLE_MS / 1000)

    def _bind_too(self, socket: zmq.asyncio.Socket, port: int) -> None:
        """Data-parallel rank r connects to the port of rank 0 plus r."""
        self._ports.add(port)
        endpoint = f"{self.endpoint.rpartition(':')[0]}:{port}"
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            log.error("cannot listen for KV events at %s: %s", endpoint, error)
        else:
            log.info("listening for KV events at %s, too", endpoint)

    def _doubt(self, worker: Worker, out: bool) -> None:
        for rank, known in worker.knowledge.items():
            if out:
                why = f"its worker is {worker.state}: {worker.reason}"
                known.feed.disconnected(why)
            else:
                known.feed.connected()
            stream = self._streams.get((worker.url, rank))
            if stream is not None:
                self._fed.add(stream)
            else:
                known.feed.work(BLOCKS)

    def _take(self, frames: Sequence[bytes], tasks: asyncio.TaskGroup) -> None:
        try:
            topic, sequence, payload = decode_live(frames)
        except UndecodableBatch as error:
            self._strange(frames[0], f"sends what is no batch: {error}")
            return
        worker = self._worker(topic)
        if worker is not None:
            stream = self._stream(worker, rank_of(payload), tasks)
            if stream is not None:
                self._hand_on(stream, sequence, payload)

    def _hand_on(self, stream: Stream, sequence: int, payload: bytes) -> None:
        """Give the feed what is one publisher's."""
        turns, feed = self._turns[stream], stream.feed
        shared = turns.shared
        for batch in turns.take(sequence, payload, time.monotonic()):
            feed.receive(*batch)
        if turns.shared and not shared:
            if feed.state is FeedState.DEGRADED:  # else its change is logged
                log.warning("KV events of %s: %s", feed.key, SHARED)
            feed.disconnected(SHARED)
        self._fed.add(stream)

    def _settle(self) -> None:
        """What nothing that comes would bring about: time passes for each stream."""
        for stream, turns in self._turns.items():
            for batch in turns.settle(time.monotonic()):
                stream.feed.receive(*batch)
            self._fed.add(stream)

    def _worker(self, topic: bytes) -> Worker | None:
        url = self._topics.url(topic[:TOPIC_BYTES].decode("utf-8", "replace"))
        worker = self._pool.get(url) if url is not None else None
        if worker is None:
            self._strange(topic, "is no worker's, see --kv-events-topic")
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
            self._turns.pop(self._streams.get((worker.url, rank), stream), None)
            self._streams[worker.url, rank] = stream
            self._turns[stream] = Turns()
        return stream

    def _strange(self, topic: bytes, why: str) -> None:
        """One line about each topic that is of no use."""
        name = topic[:TOPIC_BYTES]
        if name in self._strangers or len(self._strangers) >= STRANGERS:
            return
        self._strangers.add(name)
        shown = name[:100].decode("utf-8", "replace")
        log.warning("KV events at %s: topic %r %s", self.endpoint, shown, why)
