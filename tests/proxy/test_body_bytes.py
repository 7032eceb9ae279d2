"""Request bodies reach the worker byte for byte, whatever is in them."""

import gzip

import pytest

from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import RawClient, RawWorker, answering, json_answer

ODD = [
    b' \r\n\t{ "b" : 1 ,\n"a":\t2, "b":3 }\n\n',
    b'{"n":1e400,"big":123456789012345678901234567890,"z":-0.0,"f":1.10}',
    b'{"u":"\\u00e9\\ud83d\\ude00 \xf0\x9f\x98\x80 \\/ \\b","lone":"\\ud800"}',
    b'{"n":NaN,"i":-Infinity}',
    b"\xff\xfe not json at all \x00\x01",
    b"[1,2,3]",
    b"[" * 5000 + b"]" * 5000,
    b"",
    b"x" * 3_000_000,
]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
async def test_body_is_untouched(gateway_for: GatewayFor, body: bytes) -> None:
    """With a length, and chunked."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(body)
        await client.answer()
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for start in range(0, len(body), 1_000_000):
            piece = body[start : start + 1_000_000]
            await client.send(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
        await client.send(b"0\r\nTrailer: 1\r\n\r\n")
        await client.answer()
    for request in worker.requests:
        head, _, got = request.partition(b"\r\n\r\n")
        assert got == body
        assert b"Content-Length: %d" % len(body) in head
        assert b"transfer-encoding" not in head.lower()


async def test_compressed_bodies_are_not_decompressed(gateway_for: GatewayFor) -> None:
    """Either way: gzip in, gzip out, Content-Encoding kept."""
    packed = gzip.compress(b'{"model":"m"}' * 100)
    answer = json_answer(packed, b"Content-Encoding: gzip", b"Vary: Accept-Encoding")
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(packed, b"Content-Encoding: gzip", b"Accept-Encoding: gzip")
        head, body = await client.answer()
    assert body == packed
    assert b"Content-Encoding: gzip\r\n" in head
    assert worker.requests[0].endswith(packed)
    assert b"Content-Encoding: gzip\r\n" in worker.requests[0]
