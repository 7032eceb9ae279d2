"""The gateway's bound event socket: by which connection a message came, which are lost.

ZMQ tells no name of a connection, and uses the number of a lost one again at once. So
each gets a name of its own when it is made, by ZMQ's protocol for that (ZAP, RFC 27,
whose user id comes with each message); and which was lost is told once all that had
come by it is taken. Peers that know no handshake (before ZMTP 3.0) are refused.
"""

import itertools
import time
from collections.abc import Callable, Sequence

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from gateway.events.feeds import DISCONNECTED, prepare

Take = Callable[[int, Sequence[bytes]], None]
"""Of (name of the connection, frames)."""

_ZAP = "inproc://zeromq.zap.01"
_DOMAIN = b"kv-events"


class Connections:
    """A SUB socket that publishers connect to. Close it in the end."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self._zap = context.socket(zmq.REP)
        self._zap.bind(_ZAP)
        self._socket = context.socket(zmq.SUB)
        self._socket.set(zmq.ZAP_DOMAIN, _DOMAIN)
        prepare(self._socket)
        self._changes = self._socket.get_monitor_socket(
            zmq.EVENT_ACCEPTED | DISCONNECTED
        )
        self._plain: zmq.Socket[bytes] = zmq.Socket.shadow(self._socket)
        self._plain_changes: zmq.Socket[bytes] = zmq.Socket.shadow(self._changes)
        self._poller = zmq.asyncio.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._changes, zmq.POLLIN)
        self._open: set[int] = set()
        """ZMQ's numbers of the connections there are, and names of those heard."""
        self._names: dict[int, int] = {}
        self._lost: list[int] = []

    def bind(self, endpoint: str) -> str:
        """Listen there, too; the endpoint as it is. Raises zmq.ZMQError."""
        self._socket.bind(endpoint)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    async def admit(self) -> None:
        """Let every connection in, each by a name of its own, until cancelled."""
        for name in itertools.count(1):
            version, request, *_ = await self._zap.recv_multipart()
            answer = (version, request, b"200", b"OK", b"%d" % name, b"")
            await self._zap.send_multipart(answer)

    async def wait(self, timeout_ms: int) -> None:
        """Until messages came, or a connection was lost."""
        await self._poller.poll(0 if self._lost else timeout_ms)

    def receive(self, take: Take, end: float) -> bool:
        """Hand over the messages that wait, until `end` by `time.monotonic`.

        True where none is left; nobody's loss is told while more come than are taken.
        """
        while time.monotonic() < end:
            try:
                frames = self._plain.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return True
            name = self._name(frames[-1])
            take(name, [frame.bytes for frame in frames])
        return False

    def _name(self, frame: zmq.Frame) -> int:
        number, name = int(frame.get(zmq.SRCFD)), int(frame.get("User-Id"))
        if self._names.get(number) != name and name not in self._lost:
            self._note_changes()
            before = self._names.get(number, name)
            if number in self._open:
                self._names[number] = max(before, name)
            if number not in self._open or before != name:
                self._lost.append(min(before, name))
        return name

    def lost(self) -> list[int]:
        """The connections that were lost, once all is taken that came by them.

        Call it when all that waited is taken: those lost only since may have brought
        more, and are told the next time.
        """
        told, self._lost = self._lost, []
        self._note_changes()
        return told

    def _note_changes(self) -> None:
        while self._plain_changes.poll(0):
            change = parse_monitor_message(self._plain_changes.recv_multipart())
            number = int(change["value"])
            if change["event"] == zmq.EVENT_ACCEPTED:
                self._open.add(number)
                continue
            self._open.discard(number)
            if (name := self._names.pop(number, None)) is not None:
                self._lost.append(name)

    def close(self) -> None:
        """Hear no more."""
        if not self._socket.closed:  # the context may have been first
            self._socket.disable_monitor()
        for socket in (self._changes, self._socket, self._zap):
            socket.close(linger=0)
