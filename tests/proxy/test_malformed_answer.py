"""Workers that answer nonsense: 502, and never a wait."""

import asyncio

import pytest

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    chunk,
    event,
)

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "no http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "http 2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64",
    "no colon": OK + b"Content-Length 5\r\n\r\nhello",
    "space in name": OK + b"Bad Name: 1\r\nContent-Length: 0\r\n\r\n",
    "folded": OK + b"A: 1\r\n b\r\nContent-Length: 0\r\n\r\n",
    "bare newline": OK + b"A: 1\nInjected: 1\r\nContent-Length: 0\r\n\r\n",
    "bare return": OK + b"A: 1\rInjected: 1\r\nContent-Length: 0\r\n\r\n",
    "nul": OK + b"A: 1\x002\r\nContent-Length: 0\r\n\r\n",
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "negative length": OK + b"Content-Length: -1\r\n\r\n",
    "length and chunks": OK
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "other coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "status": b"HTTP/1.1 abc OK\r\n\r\n",
    "status 0": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    "control character in reason": b"HTTP/1.1 200 a\x01b\r\nContent-Length: 0\r\n\r\n",
    "huge header": OK + b"A: " + b"x" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "many headers": OK + b"A: 1234567890\r\n" * 10_000 + b"Content-Length: 0\r\n\r\n",
    "endless header": OK + b"A: " + b"x" * 100_000,
    "endless interim": b"HTTP/1.1 102 Processing\r\nA: bcdefgh\r\n\r\n" * 20_000,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_is_502(gateway_for: GatewayFor, answer: bytes) -> None:
    """In OpenAI's shape, with none of the worker's bytes in it."""
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b'"code":"upstream_malformed"' in body
        await asyncio.sleep(0.05)
        assert gateway.upstreams.open_connections == 0


async def test_broken_chunk_in_a_stream(gateway_for: GatewayFor) -> None:
    """The events so far, then the error event."""
    script = answering(SSE_HEAD + chunk(event(1)), b"zz\r\nnonsense\r\n", gap_s=0.05)
    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        _, body = await client.answer()
        assert body.startswith(event(1) + b'data: {"error":{')
        assert b"upstream_malformed" in body


async def test_answer_before_the_question(gateway_for: GatewayFor) -> None:
    """Bytes on a fresh connection, before a request: not taken for an answer later."""

    async def script(connection: WorkerConnection) -> None:
        await connection.send(b"220 mail.example ESMTP\r\n")
        await connection.closed_by_peer()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 502 ")


async def test_connection_header_that_names_the_length(
    gateway_for: GatewayFor,
) -> None:
    """The length stays: answers that follow on the connection are told apart."""
    answer = (
        OK + b"Connection: keep-alive, content-length\r\nContent-Length: 2\r\n\r\n{}"
    )
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(2):
            await client.post(CHAT)
            head, body = await client.answer()
            assert b"\r\nContent-Length: 2\r\n" in head
            assert body == b"{}"
