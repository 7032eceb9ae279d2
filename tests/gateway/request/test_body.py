"""Reading request bodies: limits, and clients that do not finish."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from gateway.errors import BadFraming, BodyTooLarge, GatewayError
from gateway.request import body
from gateway.server import make_runner
from tests.proxy.raw import RawClient

POST = b"POST / HTTP/1.1\r\nHost: g\r\n"
Results = list[bytes | GatewayError | int | None]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[tuple[int, Results]]]]:
    """Start a server that reads each body, at most 10 bytes, and notes the result."""
    runners: list[web.AppRunner] = []

    async def start() -> tuple[int, Results]:
        results: Results = []

        async def handle(request: web.Request) -> web.Response:
            results.append(body.length(request))
            try:
                results.append(await body.read(request, 10))
            except GatewayError as error:
                results.append(error)
                response = web.Response(status=error.status)
                response.force_close()
                return response
            return web.Response()

        app = web.Application()
        app.router.add_route("*", "/", handle, expect_handler=body.leave_expect)
        runners.append(make_runner(app, shutdown_s=1.0))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        return runners[-1].addresses[0][1], results

    yield start
    for runner in runners:
        await runner.cleanup()


async def exchange(
    serve: Callable[..., Awaitable[tuple[int, Results]]], *writes: bytes
) -> Results:
    """Send these writes; what the server noted once it answered."""
    port, results = await serve()
    async with RawClient(port) as client:
        for write in writes:
            await client.send(write)
            await asyncio.sleep(0.02)
        await client.answer()
    return results


@pytest.mark.parametrize(
    ("writes", "results"),
    [
        ([POST + b"Content-Length: 3\r\n\r\nabc"], [3, b"abc"]),
        ([POST + b"Content-Length: 10\r\n\r\n01234", b"56789"], [10, b"0123456789"]),
        ([POST + b"Content-Length: 0\r\n\r\n"], [0, b""]),
        ([POST + b"\r\n"], [0, b""]),
        (
            [POST + b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"],
            [None, b"abc"],
        ),
    ],
)
async def test_whole_bodies(
    serve: Callable[..., Awaitable[tuple[int, Results]]],
    writes: list[bytes],
    results: Results,
) -> None:
    """With a length, without, in one write or several."""
    assert await exchange(serve, *writes) == results


@pytest.mark.parametrize(
    "writes",
    [
        [POST + b"Content-Length: 11\r\n\r\n"],
        [POST + b"Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n"],
        [
            POST + b"Transfer-Encoding: chunked\r\n\r\n8\r\n",
            b"01234567\r\n3\r\nabc\r\n",
        ],
    ],
)
async def test_too_large(
    serve: Callable[..., Awaitable[tuple[int, Results]]], writes: list[bytes]
) -> None:
    """By its announced length, or by what came."""
    results = await exchange(serve, *writes)
    assert isinstance(results[1], BodyTooLarge)


async def test_a_client_that_stops_sending(
    serve: Callable[..., Awaitable[tuple[int, Results]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Is not waited for without end."""
    monkeypatch.setattr(body, "STALL_S", 0.1)
    results = await exchange(serve, POST + b"Content-Length: 9\r\n\r\nabc")
    assert isinstance(results[1], BadFraming)
