"""The server's own answers, and what is set on purpose."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from gateway.errors import BadFraming
from gateway.server import check_framing, make_runner
from tests.proxy.raw import RawClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Start = Callable[..., Awaitable[web.AppRunner]]


async def hello(request: web.Request) -> web.Response:
    """Answer with what the handler got."""
    try:
        check_framing(request)
    except BadFraming as error:
        refusal = web.Response(body=error.body(), status=error.status)
        refusal.force_close()
        return refusal
    return web.Response(text=str(len(request.headers)))


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a server with one route; ended after the test."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler = hello, shutdown_s: float = 1.0) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runners.append(make_runner(app, shutdown_s=shutdown_s))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        return runners[-1]

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def port(start: Start) -> int:
    """That of a server that says `hello`."""
    port: int = (await start()).addresses[0][1]
    return port


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
    request_bytes: bytes, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenAI's shape, no echo, no stack trace in the log, then the end."""
    with caplog.at_level(logging.INFO):
        async with RawClient(port) as client:
            await client.send(request_bytes)
            head, body = await client.answer()
            assert await client.rest() == b""
    assert b" 400 " in head
    assert b'"code":"bad_request"' in body
    assert b"secret" not in body
    assert caplog.records == []


async def test_long_headers_pass(port: int) -> None:
    """What workers take, we take."""
    async with RawClient(port) as client:
        await client.send(
            b"GET /" + b"p" * 30_000 + b" HTTP/1.1\r\nHost: g\r\n"
            b"Cookie: " + b"c" * 60_000 + b"\r\n\r\n"
        )
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"2"


async def test_many_headers_pass(port: int) -> None:
    """Far more than the 128 that aiohttp takes: what limits a head is its size."""
    lines = b"".join(b"X-%d: 1\r\n" % number for number in range(1_000))
    async with RawClient(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n" + lines + b"\r\n")
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"1001"


async def test_handlers_are_cancelled_when_the_client_leaves(start: Start) -> None:
    """aiohttp's default is that they are not."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return web.Response()

    runner = await start(wait)
    async with RawClient(runner.addresses[0][1]) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
        await begun.wait()
    async with asyncio.timeout(5):
        await cancelled.wait()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: g\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
        b"0\r\n\r\n",
    ],
)
async def test_framing_that_is_not_passed_on(request_bytes: bytes, port: int) -> None:
    """Versions and codings that aiohttp takes and a worker would read otherwise."""
    async with RawClient(port) as client:
        await client.send(request_bytes)
        assert b'"code":"bad_framing"' in await client.rest()


async def test_a_head_is_limited_as_a_whole(port: int) -> None:
    """Also one of many lines, none of which is too long, in however many pieces."""
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


@pytest.mark.parametrize(
    "lines", [b"A: b\r\n" * 1_100, b"A: " + b"x" * 70_000 + b"\r\n"]
)
async def test_a_head_is_limited_by_its_lines(lines: bytes, port: int) -> None:
    """By their number, and each by its length."""
    async with RawClient(port) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n" + lines + b"\r\n")
        head, body = await client.answer()
        assert b" 431 " in head
        assert b'"code":"head_too_large"' in body


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: g\r\n"])
async def test_who_sends_no_whole_head_is_given_up(
    monkeypatch: pytest.MonkeyPatch, said: bytes, start: Start
) -> None:
    """After the time that free connections are kept, however it trickles in."""
    monkeypatch.setattr("gateway.server.KEEP_ALIVE_S", 0.2)
    runner = await start()
    async with RawClient(runner.addresses[0][1]) as client:
        for byte in said:
            if client.writer.is_closing():
                break  # given up by now
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0.005)
        assert await client.rest() == b""


@pytest.mark.parametrize("given_s", [0.0, 2.0])
async def test_the_end_takes_as_long_as_was_given(given_s: float, start: Start) -> None:
    """Not twice that; none at all is at once. Then the handler is cancelled."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.Request) -> web.Response:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return web.Response()

    runner = await start(endless, given_s)
    async with RawClient(runner.addresses[0][1]) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
        await begun.wait()
        clock = asyncio.get_running_loop()
        since = clock.time()
        await asyncio.wait_for(runner.cleanup(), 10)
        assert given_s <= clock.time() - since < given_s + 1.5
        assert ended.is_set()
        assert await client.rest() == b""


async def test_who_ends_in_time_is_answered_whole(start: Start) -> None:
    """The end waits for no more than that, and for nobody who asks nothing."""
    begun = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        begun.set()
        await asyncio.sleep(0.3)
        return web.Response(text="whole")

    runner = await start(slow, 30.0)
    port = runner.addresses[0][1]
    async with RawClient(port) as client, RawClient(port) as idle:
        await idle.send(b"GET / HTTP/1.1\r\n")
        await client.send(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
        await begun.wait()
        await asyncio.wait_for(runner.cleanup(), 5)
        _, body = await client.answer()
        assert body == b"whole"
