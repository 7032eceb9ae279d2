"""Bodies that are too large, and bodies that are not what they say."""

import asyncio

import pytest

from tests.proxy.conftest import MAX_BODY, GatewayFor
from tests.proxy.raw import CHAT, RawClient, RawWorker, answering, json_answer

TOO_LARGE = b"%d" % (MAX_BODY + 1)


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
async def test_announced_too_large_is_refused_unread(
    gateway_for: GatewayFor, expect: bytes
) -> None:
    """413 at once, without a 100 Continue, and nothing reaches a worker."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/x HTTP/1.1\r\nHost: g\r\n%bContent-Length: %b\r\n\r\n"
            % (expect, TOO_LARGE)
        )
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close\r\n" in head
    assert b'"code":"body_too_large"' in body
    assert worker.connections == []


async def test_chunked_too_large_is_refused(gateway_for: GatewayFor) -> None:
    """The limit also holds where nothing was announced; other clients go on."""
    piece = b"400000\r\n" + b"x" * 0x400000 + b"\r\n"
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
        RawClient(gateway.port) as other,
    ):
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(MAX_BODY // 0x400000 + 1):
            await client.send(piece)
        head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 413 ")
        await other.post(CHAT)
        head, _ = await other.answer()
        assert head.startswith(b"HTTP/1.1 200 ")
    assert len(worker.requests) == 1


async def test_badly_framed_body_is_400(gateway_for: GatewayFor) -> None:
    """An impossible chunk size: our error, in OpenAI's shape, then the end."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nHost: g\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        await asyncio.sleep(0.05)
        await client.send(b"zz\r\nno chunk\r\n")
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b'"code":"bad_framing"' in body
        assert await client.rest() == b""
    assert worker.requests == []


async def test_truncated_upload_reaches_no_worker(gateway_for: GatewayFor) -> None:
    """A client that stops half-way and leaves is dropped."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
    ):
        async with RawClient(gateway.port) as client:
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: g\r\n"
                b"Content-Length: 100\r\n\r\nhalf"
            )
            await asyncio.sleep(0.05)
            client.writer.write_eof()
            assert await client.rest() == b""
        assert worker.connections == []
        assert gateway.watches == []


async def test_other_expectation_is_417(gateway_for: GatewayFor) -> None:
    """Only 100-continue can be met."""
    async with (
        RawWorker(answering(json_answer(b"{}"))) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(CHAT, b"Expect: miracles")
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 417 ")
    assert b"miracles" not in body
