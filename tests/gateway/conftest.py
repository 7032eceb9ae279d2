"""The gateway's tests run on its own loop, and may forbid blocking calls."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import aiohttp
import blockbuster
import pytest
import uvloop
from aiohttp import web

from gateway.endpoints.render_server import RenderServer
from gateway.proof import fingerprints
from gateway.server import make_runner
from gateway.settings.render_config import RenderConfig
from gateway.workers import monitor
from tests.gateway.answering import Answering, Scripted
from tests.gateway.fingerprinting import Waiting
from tests.gateway.forwarding_rig import Bodies
from tests.gateway.render_rig import RunningRenderServer, StartRenderServer
from tests.running import MODEL

OUR_ROOMS = ["gateway", "router", "render", "kvindex"]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the gateway serves on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are looked at often enough for a test."""
    monkeypatch.setattr(monitor, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(monitor, "RETRY_LIMIT_S", 0.2)
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port that is in use."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture
def never_blocks() -> Iterator[None]:
    """Blocking calls of the gateway's rooms on the event loop raise."""
    with blockbuster.blockbuster_ctx(OUR_ROOMS):
        yield


@pytest.fixture
def tasks() -> Callable[[], int]:
    """How many tasks there are now."""
    return lambda: len(asyncio.all_tasks())


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    """What the simulated workers of a test are sent."""
    return Bodies(monkeypatch)


@pytest.fixture
def proofs_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways ask no worker for proof: the test says what is proven."""

    async def nothing(*_: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr("gateway.proof.proving.Proving.watch", nothing)


@pytest.fixture
async def start_render_server(
    loaded_once: None, client: aiohttp.ClientSession
) -> AsyncIterator[StartRenderServer]:
    """Start render servers of the built-in model; any option of theirs by name."""
    running: list[tuple[RenderServer, web.AppRunner]] = []

    async def start(**options: Any) -> RunningRenderServer:
        config = RenderConfig(**{"model": MODEL} | options)
        server = await asyncio.to_thread(RenderServer, config)  # it reads files
        runner = make_runner(await server.start(), shutdown_s=0.1)
        running.append((server, runner))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return RunningRenderServer(server, runner.addresses[0][1], client)

    yield start
    for server, runner in running:
        await runner.cleanup()
        await server.stop()


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """Serve an answer at every path; the URL."""
    answering = Answering()
    yield answering.start
    await answering.stop()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """The computation of this test."""
    waiting = Waiting()
    monkeypatch.setattr(fingerprints, "compute", waiting)
    return waiting
