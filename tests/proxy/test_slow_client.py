"""A client that reads slowly holds back its worker, and nobody else."""

import asyncio

from gateway.errors import ClientGone
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    chunk,
    event,
)

BIG_EVENT = b"data: " + b"x" * 8192 + b"\n\n"
EVENTS = 4000  # 32 MB: more than all socket buffers on the way


class Flood:
    """Writes events as fast as they are taken; counts them."""

    def __init__(self) -> None:
        self.sent = 0

    async def script(self, connection: WorkerConnection) -> None:
        """Slow requests get the flood, others one event."""
        request = await connection.request()
        await connection.send(SSE_HEAD)
        if b"slow" in request:
            for _ in range(EVENTS):
                await connection.send(chunk(BIG_EVENT))
                self.sent += 1
        else:
            await connection.send(chunk(event(1)))
        await connection.send(LAST_CHUNK)


async def test_back_pressure_reaches_the_worker(gateway_for: GatewayFor) -> None:
    """The worker is stopped, others are served, and nothing is lost in the end."""
    flood = Flood()
    async with (
        RawWorker(flood.script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port, limit=1024) as slow,
    ):
        await slow.post(b'{"slow":1}')
        await slow.head()
        await asyncio.sleep(0.5)
        stopped_at = flood.sent
        assert stopped_at < EVENTS
        async with RawClient(gateway.port) as other:
            async with asyncio.timeout(1):
                await other.post(CHAT)
                _, body = await other.answer()
            assert body == event(1)
        assert flood.sent - stopped_at < 50
        received = 0
        while piece := await slow.chunk():
            received += len(piece)
        assert received == EVENTS * len(BIG_EVENT)
        assert gateway.watches[0].error is None


async def test_a_client_that_takes_nothing_is_given_up(
    gateway_for: GatewayFor,
) -> None:
    """After the stall limit both connections are closed."""
    flood = Flood()
    async with (
        RawWorker(flood.script) as worker,
        gateway_for(worker, stall_s=1.0) as gateway,
        RawClient(gateway.port, limit=1024) as slow,
    ):
        await slow.post(b'{"slow":1}')
        await slow.head()
        async with asyncio.timeout(4):
            await gateway.watches[0].released.wait()
        assert isinstance(gateway.watches[0].error, ClientGone)
        assert flood.sent < EVENTS
        await asyncio.sleep(0.05)
        assert gateway.upstreams.open_connections == 0
