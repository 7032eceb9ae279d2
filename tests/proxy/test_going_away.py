"""What open requests are told at the end of the time that they have to end."""

import contextlib

import pytest

from tests.proxy.conftest import Gateway, GatewayFor
from tests.proxy.raw import (
    CHAT,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    chunk,
    event,
    json_answer,
)

ENDLESS = chunk(event(0))
OLD = b"POST /v1/completions HTTP/1.0\r\nHost: g\r\nContent-Length: %d\r\n\r\n%b"
UPLOAD = b"POST %b HTTP/1.1\r\nHost: g\r\nContent-Length: 99\r\n\r\n{"


async def streaming(connection: WorkerConnection) -> None:
    """Streams of one event that do not end."""
    await connection.request()
    await connection.send(SSE_HEAD + ENDLESS)
    await connection.closed_by_peer()


async def silent(connection: WorkerConnection) -> None:
    """No answer."""
    await connection.head()
    await connection.closed_by_peer()


def kinds(gateway: Gateway) -> set[str | None]:
    """How the requests of the gateway ended; no client is taken to have left."""
    assert gateway.real.metrics.client_disconnects._value.get() == 0
    assert gateway.real.pool.workers[0].reason != "reset"
    return {watch.kind for watch in gateway.watches}


async def test_streams_are_told(gateway_for: GatewayFor) -> None:
    """Each with one error event; that is no failure of anybody."""
    async with RawWorker(streaming) as worker, contextlib.AsyncExitStack() as stack:
        async with gateway_for(worker) as gateway:
            clients = [
                await stack.enter_async_context(RawClient(gateway.port))
                for _ in range(20)
            ]
            for client in clients:
                await client.post(CHAT)
                await client.head()
                assert await client.chunk() == event(0)
        for client in clients:
            assert b'"code":"going_away"' in await client.chunk()
            assert await client.chunk() == b""
            assert await client.rest() == b""
    assert kinds(gateway) == {"refused"}


async def test_a_stream_that_its_connection_ends_is_told(
    gateway_for: GatewayFor,
) -> None:
    """HTTP/1.0 has no chunks."""
    async with RawWorker(streaming) as worker, contextlib.AsyncExitStack() as stack:
        async with gateway_for(worker) as gateway:
            client = await stack.enter_async_context(RawClient(gateway.port))
            await client.send(OLD % (len(CHAT), CHAT))
            await client.head()
        rest = await client.rest()
    assert rest.startswith(event(0))
    assert rest.count(b'"code":"going_away"') == 1
    assert kinds(gateway) == {"refused"}


async def test_another_body_is_cut(gateway_for: GatewayFor) -> None:
    """Nothing is added to it."""
    answer = json_answer(b'{"a": "b"}')

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(answer[:-2])
        await connection.closed_by_peer()

    async with RawWorker(script) as worker, contextlib.AsyncExitStack() as stack:
        async with gateway_for(worker) as gateway:
            client = await stack.enter_async_context(RawClient(gateway.port))
            await client.post(CHAT)
            await client.head()
        assert await client.rest() == b'{"a": "b'
    assert kinds(gateway) == {"refused"}


@pytest.mark.parametrize(
    "sent",
    [
        OLD.replace(b"1.0", b"1.1") % (len(CHAT), CHAT),
        OLD % (len(CHAT), CHAT),
        UPLOAD % b"/v1/files",
        UPLOAD % b"/v1/chat/completions",
    ],
    ids=["waiting", "waiting-1.0", "passed-on", "held"],
)
async def test_who_has_no_byte_of_an_answer_is_told(
    gateway_for: GatewayFor, sent: bytes
) -> None:
    """Waiting for its worker, or with its upload unfinished."""
    async with RawWorker(silent) as worker, contextlib.AsyncExitStack() as stack:
        async with gateway_for(worker) as gateway:
            client = await stack.enter_async_context(RawClient(gateway.port))
            await client.send(sent)
        head, body = await client.answer()
        assert await client.rest() == b""
    assert head[8:].startswith(b" 503 ")
    assert (b"\r\nconnection: close\r\n" in head.lower()) is (b"HTTP/1.1" in sent)
    assert b'"code":"going_away"' in body
    assert kinds(gateway) <= {"refused"}


async def test_who_waits_for_room_is_told(gateway_for: GatewayFor) -> None:
    """In the queue before the workers."""
    limits = {"max_inflight_tokens": 1, "queue_timeout": 60.0}
    async with RawWorker(silent) as worker, contextlib.AsyncExitStack() as stack:
        async with gateway_for(worker, **limits) as gateway:
            clients = [
                await stack.enter_async_context(RawClient(gateway.port))
                for _ in range(3)
            ]
            for client in clients:
                await client.post(CHAT)
        for client in clients:
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"going_away"' in body
    assert kinds(gateway) == {"refused"}
