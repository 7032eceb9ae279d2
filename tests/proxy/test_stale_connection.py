"""Kept connections that the worker has closed meanwhile cost nobody a request."""

import asyncio

import pytest

from gateway.errors import UpstreamReset
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    answering,
    json_answer,
    resetting,
)

CHUNKED = b"Transfer-Encoding: chunked"


async def test_connections_are_reused(gateway_for: GatewayFor) -> None:
    """One after the other over one connection."""

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await connection.send(json_answer(b"{}"))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(5):
            await client.post(CHAT)
            await client.answer()
        assert len(worker.connections) == 1


async def test_a_connection_closed_while_free_is_not_used(
    gateway_for: GatewayFor,
) -> None:
    """Its end is seen, and it is dropped."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(json_answer(b"{}"))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(3):
            await client.post(CHAT)
            head, _ = await client.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(0.05)
            assert gateway.upstreams.open_connections == 0
        assert len(worker.connections) == 3


async def test_connection_close_is_honoured(gateway_for: GatewayFor) -> None:
    """A worker that says it will close is taken at its word."""

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await connection.send(json_answer(b"{}", b"Connection: close"))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(2):
            await client.post(CHAT)
            await client.answer()
        assert len(worker.connections) == 2


@pytest.mark.usefixtures("stale_at_any_time")
async def test_a_connection_that_ends_as_it_is_used_is_replaced(
    gateway_for: GatewayFor,
) -> None:
    """The keep-alive race: the second request is the end of the first connection."""

    async with (
        RawWorker(resetting(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(4):
            await client.post(CHAT)
            head, _ = await client.answer()
            assert head.startswith(b"HTTP/1.1 200 ")
        assert len(worker.connections) >= 2


async def once(connection: WorkerConnection) -> None:
    """Answer one request; the second is the end of the connection."""
    await connection.request()
    await asyncio.sleep(0.1)
    await connection.send(json_answer(b"{}"))
    await connection.request()  # or its end
    connection.reset()


async def busy_later(connection: WorkerConnection) -> None:
    """Answer one request; there is no time for others."""
    await connection.request()
    await asyncio.sleep(0.1)
    await connection.send(json_answer(b"{}"))
    while await connection.request():
        await connection.send(json_answer(b"{}", status=b"503 Service Unavailable"))


@pytest.mark.usefixtures("stale_at_any_time")
@pytest.mark.parametrize("before", [once, busy_later])
async def test_a_second_try_is_never_stale(
    gateway_for: GatewayFor, before: Script
) -> None:
    """All workers' free connections are: it goes by a connection of its own."""

    async def ask(client: RawClient) -> None:
        await client.post(CHAT)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200 ")

    async with (
        RawWorker(before) as first,
        RawWorker(once) as second,
        gateway_for(first, second) as gateway,
        RawClient(gateway.port) as client,
        RawClient(gateway.port) as other,
    ):
        await asyncio.gather(ask(client), ask(other))
        assert (len(first.connections), len(second.connections)) == (1, 1)
        await ask(client)
        assert (len(first.connections), len(second.connections)) == (1, 2)


async def test_only_an_immediate_end_is_stale(gateway_for: GatewayFor) -> None:
    """A worker that took the request and died later may have acted on it."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(json_answer(b"{}"))
        await connection.request()
        await asyncio.sleep(0.25)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.answer()
        await client.post(CHAT)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")
        assert isinstance(gateway.watches[1].error, UpstreamReset)
        assert len(worker.connections) == 1


@pytest.mark.parametrize("framing", [b"Content-Length: 3", CHUNKED])
async def test_a_streamed_body_goes_by_a_connection_of_its_own(
    gateway_for: GatewayFor, framing: bytes
) -> None:
    """It cannot be sent a second time, so the first must not meet one that ended."""

    async with (
        RawWorker(resetting(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.answer()
        body = b"3\r\nabc\r\n0\r\n\r\n" if framing == CHUNKED else b"abc"
        line = b"POST /v1/files HTTP/1.1\r\nHost: g\r\n"
        await client.send(line + framing + b"\r\n\r\n" + body)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert worker.requests[1].endswith(b"\r\n\r\n" + body)
        assert len(worker.connections) == 2


@pytest.mark.usefixtures("stale_at_any_time")
async def test_the_maker_of_a_response_is_asked_again(gateway_for: GatewayFor) -> None:
    """Nobody else has it: a stale connection to it is replaced by one to itself."""

    other = RawWorker(answering(json_answer(b"{}", status=b"404 Not Found")))
    async with (
        RawWorker(resetting(json_answer(b'"made"'))) as worker,
        other,
        gateway_for(worker, other) as gateway,
        RawClient(gateway.port) as client,
    ):
        gateway.real.accounts.responses.made(b"resp_1", worker.url)
        for _ in range(2):
            await client.send(b"GET /v1/responses/resp_1 HTTP/1.1\r\nHost: g\r\n\r\n")
            _, body = await client.answer()
            assert body == b'"made"'
        assert len(worker.connections) == 2
        assert other.requests == []


async def test_free_connections_are_dropped_after_a_while(
    gateway_for: GatewayFor,
) -> None:
    """A worker with a keep-alive of seconds never gets to close first."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(json_answer(b"{}"))
        await connection.closed_by_peer()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker, free_s=0.3) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        await client.answer()
        assert gateway.upstreams.open_connections == 1
        await asyncio.sleep(0.6)
        assert gateway.upstreams.open_connections == 0


async def test_bytes_nobody_asked_for(gateway_for: GatewayFor) -> None:
    """A worker that goes on after its answer: that connection is not used again."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(json_answer(b"{}") + json_answer(b'"not yours"'))
        await connection.closed_by_peer()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(3):
            await client.post(CHAT)
            assert (await client.answer())[1] == b"{}"
        assert len(worker.connections) == 3
