"""Event sockets: a SUB per (worker, rank), drained in its own task into a Feed.

What the bytes mean is kvindex's; here they are only received, quickly enough that a
publisher never has to drop, and in slices short enough that requests never wait.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from kvindex.events import UndecodableBatch
from kvindex.feed import Feed
from kvindex.wire import vllm

SLICE_S = 0.002
RECEIVE_LIMIT = 10_000
"""Batches a socket may hold before ZMQ drops; a drop shows as a gap."""
BATCH_BYTES = 32 * 1024 * 1024
"""No batch is larger: a step over a million tokens has 5 MB. One that is ends the
connection."""
RECONNECT_MS = 100
RECONNECT_LIMIT_MS = 1_000
"""Until a worker that came back is heard, its old cache is still believed in."""
RENEW_MS = 3_000


class EventSockets:
    """Makes the SUB sockets of all feeds, in one ZMQ context."""

    def __init__(self) -> None:
        self._context: zmq.asyncio.Context | None = None

    def close(self) -> None:
        """Close every socket."""
        if self._context is not None:
            self._context.destroy(linger=0)

    async def follow(
        self, feed: Feed, endpoint: str, on_change: Callable[[], None]
    ) -> None:
        """Feed `feed` from a publisher that binds `endpoint`, until cancelled.

        `on_change` is called when a connection is lost and when it is back: the time
        to look whether the worker is still the same process. Raises zmq.ZMQError for
        an endpoint ZMQ cannot connect to.
        """
        if self._context is None:
            self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.SUB)
        changes: zmq.asyncio.Socket | None = None
        try:
            self._prepare(socket)
            changes = socket.get_monitor_socket(
                zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
            )
            socket.connect(endpoint)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._drain(socket, feed))
                renew = partial(_connect_anew, socket, endpoint)
                tasks.create_task(self._watch(changes, feed, on_change, renew))
        finally:
            if not socket.closed:  # `close` may have been first
                socket.disable_monitor()
            if changes is not None:
                changes.close(linger=0)
            socket.close(linger=0)

    def _prepare(self, socket: zmq.asyncio.Socket) -> None:
        socket.set(zmq.RCVHWM, RECEIVE_LIMIT)
        socket.set(zmq.MAXMSGSIZE, BATCH_BYTES)
        socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_LIMIT_MS)
        # A worker's machine that vanishes sends no FIN: ask it now and then.
        socket.set(zmq.HEARTBEAT_IVL, 5_000)
        socket.set(zmq.HEARTBEAT_TIMEOUT, 15_000)
        socket.set(zmq.IPV6, 1)
        socket.subscribe(b"")

    async def _drain(self, socket: zmq.asyncio.Socket, feed: Feed) -> None:
        plain: zmq.Socket[bytes] = zmq.Socket.shadow(socket)
        while True:
            await socket.poll()
            _receive_slice(plain, feed)
            await asyncio.sleep(0)

    async def _watch(
        self,
        changes: zmq.asyncio.Socket,
        feed: Feed,
        on_change: Callable[[], None],
        renew: Callable[[], None],
    ) -> None:
        connected = was_connected = False
        while True:
            # ZMQ never comes back to a peer that broke its protocol, such as another
            # service at that port while the worker was away, or a batch too large.
            if not connected and not await changes.poll(RENEW_MS):
                renew()
                continue
            change = parse_monitor_message(await changes.recv_multipart())
            connected = change["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if connected:
                feed.connected()
                if was_connected:
                    on_change()
                was_connected = True
            else:
                feed.disconnected("connection lost")
                on_change()


def _connect_anew(socket: zmq.asyncio.Socket, endpoint: str) -> None:
    with contextlib.suppress(zmq.ZMQError):  # ZMQ gave it up already
        socket.disconnect(endpoint)
    socket.connect(endpoint)


def _receive_slice(socket: "zmq.Socket[bytes]", feed: Feed) -> None:
    """Hand waiting batches to the feed, for at most SLICE_S."""
    end = time.monotonic() + SLICE_S
    while time.monotonic() < end:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        try:
            _, sequence, payload = vllm.decode_frames(frames)
        except UndecodableBatch as error:
            feed.unframed(str(error))
            continue
        feed.receive(sequence, payload)
