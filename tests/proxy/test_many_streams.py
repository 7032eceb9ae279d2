"""Numbers and sizes: many streams at once, answers larger than memory should hold."""

import asyncio
import resource
from contextlib import AsyncExitStack

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

STREAMS = 400


async def test_four_hundred_streams_at_once(gateway_for: GatewayFor) -> None:
    """All are open at the same time before any may end.

    vllm-project/production-stack#765
    """
    open_now = 0
    all_open = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        nonlocal open_now
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        open_now += 1
        if open_now == STREAMS:
            all_open.set()
        await all_open.wait()
        await connection.send(chunk(event(2)) + LAST_CHUNK)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        AsyncExitStack() as opened,
    ):
        clients = []
        for _ in range(STREAMS):
            client = await opened.enter_async_context(RawClient(gateway.port))
            await client.post(CHAT)
            await client.head()
            clients.append(client)
        for client in clients:
            body = b"".join([piece async for piece in client.chunks()])
            assert body == event(1) + event(2)


async def test_an_error_of_a_hundred_megabytes(gateway_for: GatewayFor) -> None:
    """Is relayed as it comes, and not held.

    vllm-project/vllm#49239
    """
    size = 100 * 1024 * 1024
    piece = b"e" * (1 << 20)

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(
            b"HTTP/1.1 422 Unprocessable\r\nContent-Length: %d\r\n\r\n" % size
        )
        for _ in range(size // len(piece)):
            await connection.send(piece)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port, limit=1 << 20) as client,
    ):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await client.post(CHAT)
        assert (await client.head()).startswith(b"HTTP/1.1 422 ")
        left = size
        while left:
            left -= len(await client.reader.read(1 << 20))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 40 * 1024
