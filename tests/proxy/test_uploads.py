"""Bodies that are passed on while they come, and answers that come before their end."""

import asyncio

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    json_answer,
)


async def test_upload_is_streamed(gateway_for: GatewayFor) -> None:
    """The worker has the first part before the client sends the second."""
    arrived = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        head = await connection.head()
        assert b"\r\nContent-Length: 6\r\n" in head
        assert await connection.take(3) == b"abc"
        arrived.set()
        assert await connection.take(3) == b"def"
        await connection.send(json_answer(b"{}"))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 6\r\n\r\nabc"
        )
        async with asyncio.timeout(2):
            await arrived.wait()
        await client.send(b"def")
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200 ")


async def test_chunked_upload_stays_chunked(gateway_for: GatewayFor) -> None:
    """Its length is not known."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n"
        )
        await asyncio.sleep(0.05)
        await client.send(b"3;x=y\r\ndef\r\n0\r\n\r\n")
        await client.answer()
        assert worker.requests[0].endswith(b"\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
        await client.post(CHAT)  # both connections are good for more
        await client.answer()
        assert len(worker.connections) == 1


async def test_slow_worker_holds_back_the_client(gateway_for: GatewayFor) -> None:
    """No more of an upload is taken than the worker takes."""
    go_on = asyncio.Event()
    total = 60 * 1024 * 1024

    async def script(connection: WorkerConnection) -> None:
        await connection.head()
        await go_on.wait()
        left = total
        while left:
            left -= len(await connection.take(min(left, 1 << 20)))
        await connection.send(json_answer(b"{}"))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % total
        )
        sending = asyncio.ensure_future(client.send(b"x" * total))
        await asyncio.sleep(0.3)
        assert client.writer.transport.get_write_buffer_size() > total // 3
        go_on.set()
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200 ")
        await sending


async def test_answer_before_the_end_of_a_streamed_body(
    gateway_for: GatewayFor,
) -> None:
    """A worker's early 413 is the client's."""

    async def script(connection: WorkerConnection) -> None:
        await connection.head()
        await connection.send(json_answer(b'{"e":1}', status=b"413 Too Large"))
        await connection.closed_by_peer()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 99\r\n\r\nabc"
        )
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 413 Too Large\r\n")
        assert body == b'{"e":1}'


async def test_answer_before_the_end_of_a_large_body(gateway_for: GatewayFor) -> None:
    """Also where the gateway holds the body, and the worker closes at once."""

    async def script(connection: WorkerConnection) -> None:
        await connection.head()
        await connection.send(json_answer(b'{"e":1}', status=b"413 Too Large"))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(b"x" * 40_000_000)
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 413 Too Large\r\n")
        assert body == b'{"e":1}'


async def test_badly_framed_upload(gateway_for: GatewayFor) -> None:
    """400 to the client; the worker sees its connection close, not an end."""
    seen = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.head()
        await connection.closed_by_peer()
        seen.set()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n"
        )
        await asyncio.sleep(0.05)
        await client.send(b"xyz\r\n")
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"bad_framing" in body
        async with asyncio.timeout(1):
            await seen.wait()


async def test_expect_continue_on_a_streamed_body(gateway_for: GatewayFor) -> None:
    """The client waits for our 100, the worker is not asked for its own."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nExpect: 100-Continue\r\n"
            b"Content-Length: 3\r\n\r\n"
        )
        assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"abc")
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"xpect" not in worker.requests[0]
