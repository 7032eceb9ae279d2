"""Event sockets: a SUB per (worker, rank), drained in its own task into a Feed.

What the bytes mean is kvindex's; here they are only received, quickly enough that a
publisher never has to drop, and in slices short enough that requests never wait. What
was missed and is replayed comes in before what followed it (`stream.py`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from gateway.events.silence import expect
from gateway.events.slices import Slices, receive_slice
from gateway.events.stream import Stream
from gateway.workers.engines.facts import EventSource
from kvindex.events import UndecodableBatch
from kvindex.feed import Feed
from kvindex.wire import vllm

RECEIVE_LIMIT = 10_000
"""Batches a socket may hold before ZMQ drops; a drop shows as a gap."""
BATCH_BYTES = 32 * 1024 * 1024
"""No batch is larger: a step over a million tokens has 5 MB. One that is ends the
connection."""
RECONNECT_MS = 100
RECONNECT_LIMIT_MS = 1_000
"""Until a worker that came back is heard, its old cache is still believed in."""
RENEW_MS = 3_000
IDLE_MS = 1_000
"""A feed may want a replay though nothing came: look so often."""
UNREACHED = "another port, or its publisher connects (--kv-events-bind) and binds none"
MUTE = "KV events or prefix caching are off, or it is another service"
CONNECTED = zmq.EVENT_HANDSHAKE_SUCCEEDED
DISCONNECTED = zmq.EVENT_DISCONNECTED


class EventSockets:
    """Makes the sockets of all feeds, in one ZMQ context."""

    def __init__(self, slices: Slices) -> None:
        self.slices = slices
        self._context: zmq.asyncio.Context | None = None

    @property
    def context(self) -> zmq.asyncio.Context:
        """The ZMQ context, made on first use: it has threads."""
        if self._context is None:
            self._context = zmq.asyncio.Context()
        return self._context

    def close(self) -> None:
        """Close every socket."""
        if self._context is not None:
            self._context.destroy(linger=0)

    async def follow(
        self, feed: Feed, source: EventSource, on_change: Callable[[], None]
    ) -> None:
        """Feed `feed` from a publisher that binds its endpoint, until cancelled.

        `on_change` is called when a connection is lost and when it is back: the time
        to look whether the worker is still the same process. Raises zmq.ZMQError for
        an endpoint ZMQ cannot connect to.
        """
        socket = self.context.socket(zmq.SUB)
        changes: zmq.asyncio.Socket | None = None
        try:
            prepare(socket)
            changes = socket.get_monitor_socket(CONNECTED | DISCONNECTED)
            socket.connect(source.endpoint)
            async with asyncio.TaskGroup() as tasks:
                stream = Stream(feed, self.context, self.slices, source.replay, tasks)
                subscription = _Subscription(
                    socket, source.endpoint, stream, self.slices
                )
                tasks.create_task(subscription.drain())
                tasks.create_task(subscription.watch(changes, on_change))
        finally:
            if not socket.closed:  # `close` may have been first
                socket.disable_monitor()
            if changes is not None:
                changes.close(linger=0)
            socket.close(linger=0)


def prepare(socket: zmq.asyncio.Socket) -> None:
    """Bounds and patience of a socket that receives events; it hears every topic."""
    socket.set(zmq.RCVHWM, RECEIVE_LIMIT)
    socket.set(zmq.MAXMSGSIZE, BATCH_BYTES)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_LIMIT_MS)
    # A worker's machine that vanishes sends no FIN: ask it now and then.
    socket.set(zmq.HEARTBEAT_IVL, 5_000)
    socket.set(zmq.HEARTBEAT_TIMEOUT, 15_000)
    socket.set(zmq.IPV6, 1)
    if socket.type == zmq.SUB:
        socket.subscribe(b"")


class _Subscription:
    """One SUB socket and the feed that it fills."""

    def __init__(
        self,
        socket: zmq.asyncio.Socket,
        endpoint: str,
        stream: Stream,
        slices: Slices,
    ) -> None:
        self._socket = socket
        self._endpoint = endpoint
        self._stream = stream
        self._slices = slices

    async def drain(self) -> None:
        """Hand batches to the feed as they come, until cancelled."""
        plain: zmq.Socket[bytes] = zmq.Socket.shadow(self._socket)
        while True:
            await self._socket.poll(IDLE_MS)
            async with self._slices.turn() as end:
                receive_slice(plain, self._take, end)
            await self._stream.work()
            await asyncio.sleep(0)

    def _take(self, frames: Sequence[bytes]) -> None:
        try:
            _, sequence, payload = decode_live(frames)
        except UndecodableBatch as error:
            self._stream.feed.unframed(str(error))
        else:
            self._stream.feed.receive(sequence, payload)

    async def watch(
        self, changes: zmq.asyncio.Socket, on_change: Callable[[], None]
    ) -> None:
        """Tell the feed of lost and made connections, until cancelled."""
        feed, endpoint = self._stream.feed, self._endpoint
        nobody = f"nothing publishes at {endpoint}: {UNREACHED}"
        expect(feed, nobody)
        connected = was_connected = False
        while True:
            # ZMQ never comes back to a peer that broke its protocol, such as another
            # service at that port while the worker was away, or a batch too large.
            if not connected and not await changes.poll(RENEW_MS):
                self._connect_anew()
                feed.unanswered(nobody)
                await self._stream.work()
                continue
            change = parse_monitor_message(await changes.recv_multipart())
            connected = change["event"] == CONNECTED
            if connected:
                feed.connected()
                expect(feed, f"{endpoint} sends no batches: {MUTE}")
                if was_connected:
                    on_change()
                was_connected = True
            else:
                feed.disconnected("connection lost")
                on_change()
            await self._stream.work()

    def _connect_anew(self) -> None:
        with contextlib.suppress(zmq.ZMQError):  # ZMQ gave it up already
            self._socket.disconnect(self._endpoint)
        self._socket.connect(self._endpoint)


def decode_live(frames: Sequence[bytes]) -> tuple[bytes, int, bytes]:
    """(topic, sequence, payload) of a live message, which cannot end a replay.

    Raises UndecodableBatch.
    """
    topic, sequence, payload = vllm.decode_frames(frames)
    if sequence == vllm.END_OF_REPLAY:
        raise UndecodableBatch("the end of a replay, while there is none")
    return topic, sequence, payload
