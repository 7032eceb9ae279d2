"""A silent worker: every wait has an end, and waiting itself is no fault."""

import asyncio
import socket
from contextlib import ExitStack

import pytest

from gateway.upstreams.exchange import Timeouts
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    answering,
    chunk,
    event,
    json_answer,
)

CHUNKED = b"Transfer-Encoding: chunked"
QUICK = Timeouts(connect_s=0.5, first_byte_s=0.4, idle_s=0.4)


def silent_after(*parts: bytes) -> Script:
    """Write `parts`, then nothing."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        for part in parts:
            await connection.send(part)
        await connection.closed_by_peer()

    return script


@pytest.mark.parametrize("parts", [[], [b"HTTP/1.1 200"], [b"HTTP/1.1 100 C\r\n\r\n"]])
async def test_no_answer_is_504(gateway_for: GatewayFor, parts: list[bytes]) -> None:
    """Whether nothing came or only a beginning; the worker's connection is closed."""
    async with (
        RawWorker(silent_after(*parts)) as worker,
        gateway_for(worker, timeouts=QUICK) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 504 ")
        assert b'"code":"upstream_timeout"' in body
        await asyncio.sleep(0.05)
        assert gateway.upstreams.open_connections == 0


async def test_silence_in_a_stream_is_an_error_event(gateway_for: GatewayFor) -> None:
    """As for a worker that dies."""
    async with (
        RawWorker(silent_after(SSE_HEAD, chunk(event(1)))) as worker,
        gateway_for(worker, timeouts=QUICK) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert body.startswith(event(1) + b'data: {"error":{')
        assert b"upstream_timeout" in body


async def test_a_long_prefill_after_the_head_is_no_silence(
    gateway_for: GatewayFor,
) -> None:
    """Until the first byte of body the longer limit counts.

    BerriAI/litellm#25654
    """
    limits = Timeouts(first_byte_s=5, idle_s=0.2)

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD)
        await asyncio.sleep(0.8)
        await connection.send(chunk(event(1)) + LAST_CHUNK)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker, timeouts=limits) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        assert (await client.answer())[1] == event(1)


async def test_a_stream_may_last_longer_than_any_limit(gateway_for: GatewayFor) -> None:
    """Limits are on silence, not on the whole.

    BerriAI/litellm#25654
    """
    parts = [chunk(event(n)) for n in range(10)]
    async with (
        RawWorker(answering(SSE_HEAD, *parts, LAST_CHUNK, gap_s=0.1)) as worker,
        gateway_for(worker, timeouts=QUICK) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert body == b"".join(event(n) for n in range(10))


@pytest.mark.parametrize("framing", [b"Content-Length: 6", CHUNKED])
async def test_a_client_that_pauses_in_its_body(
    gateway_for: GatewayFor, framing: bytes
) -> None:
    """A worker that waits for it is not silent; the end of the body is its turn."""
    pieces = [b"abc", b"def"]
    if framing == CHUNKED:
        pieces = [b"3\r\nabc\r\n", b"3\r\ndef\r\n", b"0\r\n\r\n"]

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await asyncio.sleep(0.2)
        await connection.send(answer)

    answer = json_answer(b"{}")
    async with (
        RawWorker(script) as worker,
        gateway_for(worker, timeouts=QUICK) as gateway,
        RawClient(gateway.port) as client,
    ):
        line = b"POST /v1/files HTTP/1.1\r\nHost: g\r\n"
        await client.send(line + framing + b"\r\n\r\n")
        for piece in pieces:
            await asyncio.sleep(0.8)
            await client.send(piece)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200 ")
        assert worker.requests[0].endswith(b"\r\n\r\n" + b"".join(pieces))


async def test_a_worker_that_answers_nothing_to_a_slow_body(
    gateway_for: GatewayFor,
) -> None:
    """From the end of the request its time runs, as for any other."""
    async with (
        RawWorker(silent_after()) as worker,
        gateway_for(worker, timeouts=QUICK) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: 6\r\n\r\nabc"
        )
        await asyncio.sleep(0.6)
        await client.send(b"def")
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 504 ")


async def test_a_worker_that_takes_no_more_of_a_body(gateway_for: GatewayFor) -> None:
    """While a piece waits for the worker, it is the worker that is silent."""

    async def script(connection: WorkerConnection) -> None:
        await connection.head()
        await asyncio.sleep(3)

    total = 40_000_000
    async with (
        RawWorker(script) as worker,
        gateway_for(worker, timeouts=QUICK) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Length: %d\r\n\r\n" % total
        )
        sending = asyncio.ensure_future(client.send(b"x" * total))
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 504 ")
        sending.cancel()
        assert gateway.upstreams.open_connections == 0


async def test_no_connection_in_time(gateway_for: GatewayFor) -> None:
    """A host that takes no connection: 502, and another try is safe."""
    deaf = RawWorker(silent_after())
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # fill its queue: what comes now gets no answer
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        deaf.port = listener.getsockname()[1]
        async with (
            gateway_for(deaf, timeouts=QUICK) as gateway,
            RawClient(gateway.port) as client,
        ):
            await client.post(CHAT)
            head, body = await client.answer()
            assert head.startswith(b"HTTP/1.1 502 ")
            assert b'"code":"upstream_connect_failed"' in body
