"""A client that leaves, in any way and at any time, ends the worker's request."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web

from gateway.server import make_runner
from tests.proxy.conftest import Gateway, GatewayFor
from tests.proxy.raw import (
    CHAT,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    chunk,
    event,
    reset,
)

WHOLE = CHAT.replace(b"true", b"false")
Leave = Callable[[RawClient], None]


def closes(client: RawClient) -> None:
    """FIN, and whatever comes is refused."""
    client.writer.close()


def resets(client: RawClient) -> None:
    """RST."""
    reset(client.writer)


def half_closes(client: RawClient) -> None:
    """FIN, but still reading."""
    client.writer.write_eof()


LEAVES = pytest.mark.parametrize("leave", [closes, resets, half_closes])


async def released(gateway: Gateway) -> None:
    """Wait until every request has let go of what it held, and counts no more."""
    async with asyncio.timeout(1):
        for watch in gateway.watches:
            await watch.released.wait()
    assert [w.inflight_requests for w in gateway.real.pool.workers] == [0]


@pytest.mark.parametrize("body", [CHAT, WHOLE], ids=["streamed", "whole"])
@LEAVES
async def test_before_the_answer(
    gateway_for: GatewayFor, leave: Leave, body: bytes
) -> None:
    """The worker computes; nobody will read it, be it a stream or not.

    vllm-project/production-stack#634, sgl-project/sglang#39461
    """
    took: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        took.set_result(await connection.closed_by_peer())

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(body)
        await asyncio.sleep(0.1)
        leave(client)
        assert await took < 1
        await released(gateway)
        assert gateway.upstreams.open_connections == 0


@LEAVES
async def test_during_the_stream(gateway_for: GatewayFor, leave: Leave) -> None:
    """Both while events flow and while the worker is silent.

    sgl-project/sglang#39461
    """
    took: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        took.set_result(await connection.closed_by_peer())

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.head()
        await client.chunk()
        leave(client)
        assert await took < 1
        await released(gateway)
        assert gateway.watches[0].kind == "client"


@LEAVES
async def test_during_a_flood(gateway_for: GatewayFor, leave: Leave) -> None:
    """While the worker writes as fast as it can."""
    stopped = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD)
        try:
            while True:
                await connection.send(chunk(event(1) * 100))
        finally:
            stopped.set()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.head()
        await client.chunk()
        leave(client)
        async with asyncio.timeout(1.5):
            await stopped.wait()
        await released(gateway)


@LEAVES
async def test_while_nothing_is_taken(gateway_for: GatewayFor, leave: Leave) -> None:
    """A client that stopped reading long before it left."""
    took: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD)
        sending = asyncio.ensure_future(connection.send(chunk(b"data: x\n\n" * 9**7)))
        await left.wait()
        begun = asyncio.get_running_loop().time()
        await asyncio.wait([sending], timeout=5)
        took.set_result(asyncio.get_running_loop().time() - begun)

    left = asyncio.Event()
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port, limit=1024) as client,
    ):
        await client.post(CHAT)
        await client.head()
        await asyncio.sleep(0.3)  # buffers fill up
        leave(client)
        left.set()
        assert await took < 1.2
        await released(gateway)


async def test_the_handler_is_cancelled() -> None:
    """aiohttp's own default left it running, in some releases and not in others.

    aio-libs/aiohttp#5814, aio-libs/aiohttp#6719
    """
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def handler(request: web.Request) -> web.Response:
        await ends.put("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ends.put("cancelled")
            raise
        raise AssertionError

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = make_runner(app, shutdown_s=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with RawClient(runner.addresses[0][1]) as client:
            await client.post(CHAT)
            assert await asyncio.wait_for(ends.get(), 5) == "begun"
        assert await asyncio.wait_for(ends.get(), 5) == "cancelled"
    finally:
        await runner.cleanup()


async def test_during_its_upload(gateway_for: GatewayFor) -> None:
    """A streamed upload that breaks off reaches no end at the worker either."""
    took: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def script(connection: WorkerConnection) -> None:
        await connection.head()
        took.set_result(await connection.closed_by_peer())

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 1000\r\n\r\nabc"
        )
        await asyncio.sleep(0.1)
        closes(client)
        assert await took < 1
        await released(gateway)


@pytest.mark.parametrize("names", [("same", "same"), ("a", "ab"), ("ab", "a")])
async def test_others_are_not_disturbed(
    gateway_for: GatewayFor, names: tuple[str, str]
) -> None:
    """One of two streams is left; the other ends well, whatever their ids are.

    sgl-project/sglang#39461
    """
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        await go_on.wait()
        await connection.send(chunk(event(2)) + b"0\r\n\r\n")

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as leaves,
        RawClient(gateway.port) as stays,
    ):
        for client, name in zip((leaves, stays), names, strict=True):
            await client.post(CHAT, b"X-Request-ID: " + name.encode())
            await client.head()
            await client.chunk()
        closes(leaves)
        await asyncio.sleep(0.1)
        go_on.set()
        assert await stays.chunk() == event(2)
        assert await stays.chunk() == b""
