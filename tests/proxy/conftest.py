"""The gateway under test: its real handlers, in front of scripted workers.

`serve` leaves out only what would speak to the workers by itself: contact and feeds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvloop
from aiohttp import web

from gateway.app import Gateway as RealGateway
from gateway.errors import GatewayError
from gateway.request.account import Account, Accounts
from gateway.request.headers import RawHeaders
from gateway.request.usage import UsageScanner
from gateway.server import make_runner
from gateway.settings.config import Config
from gateway.tls import Tls
from gateway.tracing.record import RequestRecord
from gateway.upstreams.exchange import Timeouts
from gateway.upstreams.upstream import Upstreams
from router.decision import Decision
from tests.proxy.raw import RawWorker

MAX_BODY = 64 * 1024 * 1024


class Watch(Account):
    """An account that remembers what it saw, and how the exchange ended.

    `error` is what ended it, `kind` the word the router was told: None where the
    answer was complete.
    """

    def __init__(
        self,
        accounts: Accounts,
        decision: Decision,
        begun: float,
        *,
        uncompared: str | None,
        record: RequestRecord,
    ) -> None:
        super().__init__(
            accounts, decision, begun, uncompared=uncompared, record=record
        )
        self.status = 0
        self.first_bytes = 0
        self.relayed = b""
        self.scanner = UsageScanner()
        self.error: GatewayError | None = None
        self.kind: str | None = None
        self.released = asyncio.Event()

    def head(self, status: int, headers: RawHeaders) -> None:
        super().head(status, headers)
        self.status = status

    def first_byte(self) -> None:
        super().first_byte()
        self.first_bytes += 1

    def data(self, data: bytes) -> None:
        super().data(data)
        self.scanner.feed(data)
        self.relayed += data[:4096]

    def ended(self, error: GatewayError | None) -> None:
        if not self.released.is_set():
            self.error = error
        super().ended(error)
        self.released.set()

    def failed(self, kind: str) -> None:
        if not self.released.is_set():
            self.kind = kind
        super().failed(kind)
        self.released.set()


class _Watches(Accounts):
    """Opens accounts that can be looked at."""

    def __init__(self, opened: list[Watch], like: Accounts) -> None:
        super().__init__(like.metrics)
        self._opened = opened

    def open(
        self,
        decision: Decision,
        begun: float,
        *,
        uncompared: str | None = None,
        stored: bool = False,
        record: RequestRecord | None = None,
    ) -> Account:
        watch = Watch(
            self,
            decision,
            begun,
            uncompared=uncompared,
            record=record or RequestRecord(),
        )
        self._opened.append(watch)
        return watch


class Gateway(msgspec.Struct):
    """A running gateway, and what its requests left behind."""

    port: int
    upstreams: Upstreams
    watches: list[Watch]
    real: RealGateway


GatewayFor = Callable[..., AbstractAsyncContextManager[Gateway]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the gateway serves on."""
    return {"uvloop": uvloop.new_event_loop}


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
    **options: Any,
) -> AsyncIterator[Gateway]:
    """The real handlers in front of workers that are taken to be ready.

    `options` are those of `Config`, by name.
    """
    urls = tuple(worker.url for worker in workers)
    given: dict[str, Any] = {
        "policy": "round_robin",
        "render": "never",
        "max_body": MAX_BODY,
    } | options
    config = Config(workers=(urls,), **given)
    real = RealGateway(config)
    watches: list[Watch] = []
    real.accounts = _Watches(watches, real.accounts)
    tls = real.access.worker_tls
    upstreams = Upstreams(timeouts=timeouts, free_s=free_s, tls=tls)
    runner = make_runner(real.application(upstreams, stall_s=stall_s), shutdown_s=1.0)
    await runner.setup()
    clients_tls = Tls.of(config).clients
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=clients_tls)
    await site.start()
    try:
        yield Gateway(runner.addresses[0][1], upstreams, watches, real)
    finally:
        await runner.cleanup()
        await upstreams.close()
