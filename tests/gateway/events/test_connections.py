"""The bound socket: whose message is it, and is its connection lost?"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import zmq
import zmq.asyncio

from gateway.events.connections import Connections
from tests.running import free_port


class Heard:
    """What was taken, in its order."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.messages: list[tuple[int, bytes]] = []
        self.lost: list[int] = []

    def take(self, name: int, frames: Sequence[bytes]) -> None:
        """One message."""
        self.messages.append((name, frames[0]))

    async def drain(self, messages: int) -> None:
        """Until so many are there, and a little longer."""
        async with asyncio.timeout(5):
            while len(self.messages) < messages:
                await self.connections.wait(100)
                if self.connections.receive(self.take, time.monotonic() + 0.1):
                    self.lost += self.connections.lost()
        await asyncio.sleep(0.1)
        self.lost += self.connections.lost()
        self.lost += self.connections.lost()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Heard, str]]:
    """A bound socket, and where it is."""
    context = zmq.asyncio.Context()
    connections = Connections(context)
    admitting = asyncio.create_task(connections.admit())
    try:
        yield Heard(connections), connections.bind(f"tcp://127.0.0.1:{free_port()}")
    finally:
        admitting.cancel()
        await asyncio.wait({admitting})
        connections.close()
        context.destroy(linger=0)


@contextmanager
def talking() -> Iterator["zmq.Context[zmq.Socket[bytes]]"]:
    """Where sockets are made; none is left, or the end would wait for it for ever."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)


async def publisher(
    context: "zmq.Context[zmq.Socket[bytes]]", heard: Heard, endpoint: str
) -> "zmq.Socket[bytes]":
    """One that is connected, and whose first message is not lost."""
    socket = context.socket(zmq.XPUB)
    socket.set(zmq.SNDHWM, 0)
    socket.connect(endpoint)
    async with asyncio.timeout(5):
        while not socket.poll(0):  # the subscription, sent by who waits
            await heard.connections.wait(10)
            await asyncio.sleep(0.01)
    return socket


async def test_connections_one_after_the_other() -> None:
    """ZMQ uses one number for all of them: each has a name, each loss is told once."""
    async with listening() as (heard, endpoint):
        with talking() as context:
            for number in range(4):
                socket = await publisher(context, heard, endpoint)
                socket.send(b"%d" % number)
                await heard.drain(number + 1)
                socket.close(linger=0)
                await asyncio.sleep(0.1)
        await heard.drain(4)
        names = [name for name, _ in heard.messages]
        assert heard.lost == names
        assert sorted(set(names)) == names


async def test_what_is_unread_when_a_connection_is_lost() -> None:
    """The loss is told after all that came by it, though others have come since."""
    async with listening() as (heard, endpoint):
        with talking() as context:
            first = await publisher(context, heard, endpoint)
            for _ in range(2_000):
                first.send(b"old")
            await asyncio.sleep(0.3)
            first.close(linger=1_000)
            await asyncio.sleep(0.3)
            second = await publisher(context, heard, endpoint)
            for _ in range(2_000):
                second.send(b"new")
            await asyncio.sleep(0.3)
            while len(heard.messages) < 4_000:
                if heard.connections.receive(heard.take, time.monotonic() + 0.001):
                    heard.lost += heard.connections.lost()
                assert not (heard.lost and len(heard.messages) < 2_000)
                await asyncio.sleep(0)
            await heard.drain(4_000)
            old = {name for name, said in heard.messages if said == b"old"}
            new = {name for name, said in heard.messages if said == b"new"}
            assert (len(old), len(new)) == (1, 1)
            assert max(old) < min(new)
            assert heard.lost == list(old)
            second.close(linger=0)


async def test_one_that_is_lost_before_it_is_heard() -> None:
    """Its loss is told all the same, after its messages; that of a silent one not."""
    async with listening() as (heard, endpoint):
        with talking() as context:
            silent = await publisher(context, heard, endpoint)
            for number in range(3):
                socket = await publisher(context, heard, endpoint)
                socket.send(b"%d" % number)
                await asyncio.sleep(0.1)
                socket.close(linger=1_000)
                await asyncio.sleep(0.1)
            silent.close(linger=0)
            await heard.drain(3)
        names = [name for name, _ in heard.messages]
        assert len(set(names)) == 3
        assert sorted(heard.lost) == sorted(names)
