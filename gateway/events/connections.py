"""The gateway's bound event socket: by which connection a message came, which are lost.

ZMQ tells the file descriptor of a connection with each message, and when one is
closed. Lost ones are told after what had come by them is taken: the number may be that
of another connection soon.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from gateway.events.feeds import DISCONNECTED, prepare

Take = Callable[[int, Sequence[bytes]], None]
"""Of (connection, frames)."""


class Connections:
    """A SUB socket that publishers connect to. Close it in the end."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self._socket = context.socket(zmq.SUB)
        prepare(self._socket)
        self._changes = self._socket.get_monitor_socket(DISCONNECTED)
        self._plain: zmq.Socket[bytes] = zmq.Socket.shadow(self._socket)
        self._plain_changes: zmq.Socket[bytes] = zmq.Socket.shadow(self._changes)
        self._poller = zmq.asyncio.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._changes, zmq.POLLIN)

    def bind(self, endpoint: str) -> str:
        """Listen there, too; the endpoint as it is. Raises zmq.ZMQError."""
        self._socket.bind(endpoint)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    async def wait(self, timeout_ms: int) -> None:
        """Until messages came, or a connection was lost."""
        await self._poller.poll(timeout_ms)

    def receive(self, take: Take, end: float) -> bool:
        """Hand over the messages that wait, until `end` by `time.monotonic`; all?"""
        while time.monotonic() < end:
            try:
                frames = self._plain.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return True
            connection = int(frames[-1].get(zmq.SRCFD))
            take(connection, [frame.bytes for frame in frames])
        return False

    def lost(self) -> Iterator[int]:
        """The connections that were lost since the last time."""
        while self._plain_changes.poll(0):
            change = parse_monitor_message(self._plain_changes.recv_multipart())
            yield int(change["value"])

    def close(self) -> None:
        """Hear no more."""
        if not self._socket.closed:  # the context may have been first
            self._socket.disable_monitor()
        self._changes.close(linger=0)
        self._socket.close(linger=0)
