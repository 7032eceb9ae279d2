"""Answers that are compressed: decoded by nobody on the way, and named as they came.

qualixar/superlocalmemory#79: the proxy's own client had decoded what the header still
called coded.
"""

import asyncio
import zlib

import aiohttp
import pytest

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    chunk,
    event,
    json_answer,
)

TEXT = b'{"choices":[{"message":{"content":"fine, fine, fine, fine"}}]}'


def coded(window: int, *parts: bytes) -> list[bytes]:
    """Parts in gzip (window 31) or deflate (15), each of them whole on its way."""
    coder = zlib.compressobj(wbits=window)
    pieces = [coder.compress(part) + coder.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*pieces[:-1], pieces[-1] + coder.flush()]


GZIP, DEFLATE = 31, 15
WHOLE = {
    b"gzip": coded(GZIP, TEXT)[0],
    b"deflate": coded(DEFLATE, TEXT)[0],
    b"br": bytes.fromhex(
        "1b3d00c08dd315f32384752f45b6f652a7ab0f1c72c07a91246c0b130936e030e19ec7b5958d26"
        "65a171f27cd0e41b"
    ),
    b"zstd": bytes.fromhex(
        "28b52ffd203ead0100e4027b2263686f69636573223a5b7b226d657373616765223a7b22636f6e"
        "74656e74223a2266696e652c20227d7d5d7d01000952ca"
    ),
    b"identity": TEXT,
}
"""`TEXT` in each coding, as its own library writes it."""


@pytest.mark.parametrize("coding", WHOLE)
async def test_codings_are_kept(gateway_for: GatewayFor, coding: bytes) -> None:
    """The bytes and their Content-Encoding come as they were; what is accepted goes."""
    answer = json_answer(WHOLE[coding], b"Content-Encoding: " + coding)
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(b"{}", b"Accept-Encoding: " + coding)
        head, body = await client.answer()
        assert body == WHOLE[coding]
        assert b"\r\nContent-Encoding: " + coding + b"\r\n" in head
        sent = worker.requests[0].partition(b"\r\n\r\n")[0].split(b"\r\n")
        codings = [line for line in sent if line.lower().startswith(b"accept-encoding")]
        assert codings == [b"Accept-Encoding: " + coding]


async def test_no_coding_is_accepted_for_a_client(gateway_for: GatewayFor) -> None:
    """That has not asked for one."""
    async with (
        RawWorker(answering(json_answer(TEXT))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(b"{}")
        assert (await client.answer())[1] == TEXT
        assert b"accept-encoding" not in worker.requests[0].lower()


@pytest.mark.parametrize(("coding", "window"), [(b"gzip", GZIP), (b"deflate", DEFLATE)])
async def test_a_client_reads_a_coded_stream(
    gateway_for: GatewayFor, coding: bytes, window: int
) -> None:
    """Each piece when the worker has written it, and to its end without an error."""
    events = [event(number) for number in range(5)]
    first, *others = map(chunk, coded(window, *events))
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        head = SSE_HEAD[:-2] + b"Content-Encoding: " + coding + b"\r\n\r\n"
        await connection.send(head + first)
        await go_on.wait()
        await connection.send(b"".join(others) + LAST_CHUNK)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        aiohttp.ClientSession() as session,
    ):
        url = f"http://127.0.0.1:{gateway.port}/v1/chat/completions"
        async with session.post(url, json={"stream": True}) as response:
            assert response.headers["Content-Encoding"] == coding.decode()
            read = await response.content.readexactly(len(events[0]))
            go_on.set()
            read += await response.read()
    assert read == b"".join(events)
