"""The server's own answers, and what is set on purpose."""

import asyncio
import logging

import pytest
from aiohttp import web

from gateway.errors import BadFraming
from gateway.server import check_framing, make_runner
from tests.proxy.raw import RawClient


async def hello(request: web.Request) -> web.Response:
    """Answer with what the handler got."""
    try:
        check_framing(request)
    except BadFraming as error:
        refusal = web.Response(body=error.body(), status=error.status)
        refusal.force_close()
        return refusal
    return web.Response(text=str(len(request.headers)))


async def started() -> tuple[web.AppRunner, int]:
    """A server with one route."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    runner = make_runner(app, shutdown_s=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense secret\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: g\r\nsecret header: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: g\r\nA: 1\x00\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_400(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenAI's shape, no echo, no stack trace in the log, then the end."""
    runner, port = await started()
    with caplog.at_level(logging.INFO):
        async with RawClient(port) as client:
            await client.send(request_bytes)
            head, body = await client.answer()
            assert await client.rest() == b""
    assert b" 400 " in head
    assert b'"code":"bad_request"' in body
    assert b"secret" not in body
    assert caplog.records == []
    await runner.cleanup()


async def test_long_headers_pass() -> None:
    """What workers take, we take."""
    runner, port = await started()
    async with RawClient(port) as client:
        await client.send(
            b"GET /" + b"p" * 30_000 + b" HTTP/1.1\r\nHost: g\r\n"
            b"Cookie: " + b"c" * 60_000 + b"\r\n\r\n"
        )
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"2"
    await runner.cleanup()


async def test_many_headers_pass() -> None:
    """Far more than the 128 that aiohttp takes: what limits a head is its size."""
    runner, port = await started()
    lines = b"".join(b"X-%d: 1\r\n" % number for number in range(1_000))
    async with RawClient(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n" + lines + b"\r\n")
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"1001"
    await runner.cleanup()


async def test_handlers_are_cancelled_when_the_client_leaves() -> None:
    """aiohttp's default is that they are not."""
    cancelled = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", wait)
    runner = make_runner(app, shutdown_s=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with RawClient(runner.addresses[0][1]) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
        await asyncio.sleep(0.05)
    async with asyncio.timeout(1):
        await cancelled.wait()
    await runner.cleanup()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: g\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
        b"0\r\n\r\n",
    ],
)
async def test_framing_that_is_not_passed_on(request_bytes: bytes) -> None:
    """Versions and codings that aiohttp takes and a worker would read otherwise."""
    runner, port = await started()
    async with RawClient(port) as client:
        await client.send(request_bytes)
        assert b'"code":"bad_framing"' in await client.rest()
    await runner.cleanup()


async def test_a_head_is_limited_as_a_whole() -> None:
    """Also one of many lines, none of which is too long, in however many pieces."""
    runner, port = await started()
    line = b"A: " + b"x" * 40_000 + b"\r\n"
    async with RawClient(port) as client:
        for _ in range(2):  # the limit is that of one head, not of a connection
            await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n" + line * 3)
            await asyncio.sleep(0.02)
            await client.send(line * 3 + b"\r\n")
            assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n")
        for _ in range(7):
            await client.send(line)
            await asyncio.sleep(0.02)
        head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 431 ")
        assert b'"code":"head_too_large"' in body
        assert await client.rest() == b""
    await runner.cleanup()


@pytest.mark.parametrize(
    "lines", [b"A: b\r\n" * 1_100, b"A: " + b"x" * 70_000 + b"\r\n"]
)
async def test_a_head_is_limited_by_its_lines(lines: bytes) -> None:
    """By their number, and each by its length."""
    runner, port = await started()
    async with RawClient(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n" + lines + b"\r\n")
        head, body = await client.answer()
        assert b" 431 " in head
        assert b'"code":"head_too_large"' in body
    await runner.cleanup()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: g\r\n"])
async def test_who_sends_no_whole_head_is_given_up(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """After the time that free connections are kept, however it trickles in."""
    monkeypatch.setattr("gateway.server.KEEP_ALIVE_S", 0.2)
    runner, port = await started()
    async with RawClient(port) as client:
        for byte in said:
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0.005)
        assert await client.rest() == b""
    await runner.cleanup()


@pytest.mark.parametrize("given_s", [0.0, 0.6])
async def test_the_end_takes_as_long_as_was_given(given_s: float) -> None:
    """Not twice that; none at all is at once. Then the handler is cancelled."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.Request) -> web.Response:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", endless)
    runner = make_runner(app, shutdown_s=given_s)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with RawClient(runner.addresses[0][1]) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
        await begun.wait()
        clock = asyncio.get_running_loop()
        since = clock.time()
        await asyncio.wait_for(runner.cleanup(), 5)
        assert given_s <= clock.time() - since < given_s + 0.5
        assert ended.is_set()
        assert await client.rest() == b""


async def test_who_ends_in_time_is_answered_whole() -> None:
    """The end waits for no more than that, and for nobody who asks nothing."""
    begun = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        begun.set()
        await asyncio.sleep(0.3)
        return web.Response(text="whole")

    app = web.Application()
    app.router.add_get("/", slow)
    runner = make_runner(app, shutdown_s=30.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with RawClient(port) as client, RawClient(port) as idle:
        await idle.send(b"GET / HTTP/1.1\r\n")
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
        await begun.wait()
        await asyncio.wait_for(runner.cleanup(), 5)
        _, body = await client.answer()
        assert body == b"whole"
