"""The gateway under test: `gateway_for` is the one place that says what it is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest
import uvloop
from aiohttp import web

from gateway import body
from gateway.errors import ConnectFailed, GatewayError, StaleConnection
from gateway.exchange import Timeouts
from gateway.headers import RawHeaders, request_id, target, to_worker
from gateway.origin import Origin
from gateway.relay import relay
from gateway.server import make_runner
from gateway.upstream import UpstreamRequest, Upstreams
from gateway.upstream_response import UpstreamResponse
from gateway.usage import UsageScanner
from tests.proxy.raw import RawWorker

MAX_BODY = 64 * 1024 * 1024


class Watch:
    """What the observer of one request saw, and how the request ended."""

    def __init__(self) -> None:
        self.status = 0
        self.first_bytes = 0
        self.relayed = b""
        self.scanner = UsageScanner()
        self.error: BaseException | None = None
        self.released = asyncio.Event()

    def head(self, status: int, headers: RawHeaders) -> None:
        self.status = status

    def first_byte(self) -> None:
        self.first_bytes += 1

    def data(self, data: bytes) -> None:
        self.scanner.feed(data)
        self.relayed += data[:4096]


class Gateway(msgspec.Struct):
    """A running gateway, and what its requests left behind."""

    port: int
    upstreams: Upstreams
    watches: list[Watch]


GatewayFor = Callable[..., AbstractAsyncContextManager[Gateway]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every proxy test runs on both loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def gateway_for() -> GatewayFor:
    """`async with gateway_for(worker, ...) as gateway:` serves in front of workers."""
    return serve


@asynccontextmanager
async def serve(
    *workers: RawWorker,
    timeouts: Timeouts | None = None,
    stall_s: float = 300.0,
    free_s: float = 3.0,
) -> AsyncIterator[Gateway]:
    """The proxy core behind the smallest handler: first worker, one retry."""
    upstreams = Upstreams(timeouts=timeouts, free_s=free_s)
    handler = _Handler(upstreams, workers, stall_s)
    app = web.Application()
    app.router.add_route(
        "*", "/{path:.*}", handler.handle, expect_handler=body.leave_expect
    )
    runner = make_runner(app, shutdown_s=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield Gateway(runner.addresses[0][1], upstreams, handler.watches)
    finally:
        await runner.cleanup()
        await upstreams.close()


class _Handler:
    """The smallest handler: the first worker, one retry on the last."""

    def __init__(
        self, upstreams: Upstreams, workers: Sequence[RawWorker], stall_s: float
    ) -> None:
        self.watches: list[Watch] = []
        self._upstreams = upstreams
        self._origins = [Origin.parse(worker.url) for worker in workers]
        self._stall_s = stall_s

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        watch = Watch()
        self.watches.append(watch)
        name = request_id(request.raw_headers)
        try:
            response = await _send(self._upstreams, self._origins, request, name)
            relayed = await relay(
                request,
                response,
                request_id=name,
                observer=watch,
                stall_s=self._stall_s,
            )
            watch.error = relayed.error
            return relayed
        except GatewayError as error:
            watch.error = error
            return _error_response(error, name)
        except asyncio.CancelledError as error:
            watch.error = error
            raise
        finally:
            watch.released.set()


async def _send(
    upstreams: Upstreams, origins: list[Origin], request: web.Request, name: bytes
) -> UpstreamResponse:
    content: bytes | AsyncIterator[bytes]
    if request.path.startswith("/v1/files"):
        content = body.stream(request, MAX_BODY)
    else:
        content = await body.read(request, MAX_BODY)
    outgoing = UpstreamRequest(
        method=request.method,
        target=target(request.raw_path),
        headers=to_worker(request.raw_headers, request_id=name),
        body=content,
        length=body.length(request),
    )
    try:
        return await upstreams.send(origins[0], outgoing)
    except (ConnectFailed, StaleConnection) as error:
        if not error.retryable:
            raise
        return await upstreams.send(origins[-1], outgoing)


def _error_response(error: GatewayError, name: bytes) -> web.Response:
    response = web.Response(
        status=error.status,
        body=error.body(),
        content_type="application/json",
        headers={"X-Request-ID": name.decode(), **dict(error.headers)},
    )
    if error.close:
        response.force_close()
    return response
