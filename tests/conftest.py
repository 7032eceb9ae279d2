"""Whole gateways over real sockets, in front of simulated workers in this process."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from hypothesis import HealthCheck, settings

from gateway.app import Gateway
from gateway.server import make_runner
from gateway.settings.config import Config
from gateway.upstreams import exchange
from render import Renderer
from simworker.model import demo_model_dir
from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.render.models import byte_level, save
from tests.running import (
    MODEL,
    SIM,
    Running,
    StartGateway,
    StartWorker,
    until_followed,
)

# A busy machine is not a failure: neither of a test, nor of what makes its inputs.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in model's directory."""
    return demo_model_dir(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def small_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for processes: it loads in a moment, the built-in one in seconds."""
    return save(tmp_path_factory.mktemp("small"), byte_level())


@pytest.fixture(scope="session")
def vllm(model_dir: Path) -> Renderer:
    """The built-in model's renderer, of vLLM; loading it takes seconds."""
    return Renderer.load(model_dir)


@pytest.fixture(scope="session")
def renderer(vllm: Renderer) -> Renderer:
    """The renderer that gateways and simulated workers share."""
    return vllm


@pytest.fixture
def loaded_once(
    renderer: Renderer, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What loads the built-in model as it is gets the shared renderer.

    With another template it is loaded, but the encoder is the one that loads sooner.
    """
    load = Renderer.load
    ours = (MODEL, str(model_dir))

    def shared(source: Any, **options: Any) -> Renderer:
        if str(source) not in ours:
            return load(source, **options)
        if options.get("chat_template") is None:
            return renderer
        return load(source, **options | {"encoder": "tokenizers"})

    monkeypatch.setattr(Renderer, "load", shared)


@pytest.fixture
def stale_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reused connection that ends at once is stale, however busy the machine is."""
    monkeypatch.setattr(exchange, "STALE_S", 30.0)


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command that is run here sets how much is logged; not for the next test."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


@pytest.fixture
async def start_worker(renderer: Renderer) -> AsyncIterator[StartWorker]:
    """Start simulated workers, `SIM` or other options; stopped after the test."""
    workers: list[SimWorker] = []

    async def start(options: SimOptions = SIM) -> SimWorker:
        worker = SimWorker(options, renderer)
        await worker.start()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        await worker.stop()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


@pytest.fixture
async def start_gateway(
    loaded_once: None, client: aiohttp.ClientSession
) -> AsyncIterator[StartGateway]:
    """Start gateways in front of worker URLs; any option of `Config` by name.

    They render with the shared renderer, where the model of the options is `MODEL`.
    """
    running: list[tuple[Gateway, web.AppRunner]] = []

    async def start(*workers: SimWorker | str, **options: Any) -> Running:
        urls = tuple(w if isinstance(w, str) else w.url for w in workers)
        given = {"model": ((None, MODEL),), "render_deadline": 5.0} | options
        config = msgspec.structs.replace(Config(workers=(urls,)), **given)
        gateway = await asyncio.to_thread(Gateway, config)  # it looks at files
        app = await gateway.start()
        runner = make_runner(app, shutdown_s=0.1)
        running.append((gateway, runner))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await _connected(gateway)
        return Running(gateway, runner, client)

    yield start
    for gateway, runner in running:
        await runner.cleanup()
        await gateway.stop()


async def _connected(gateway: Gateway) -> None:
    """Wait for the event sockets, if anybody publishes there."""
    facts = gateway.monitor.facts
    workers = [worker for worker in gateway.pool.workers if worker.url in facts]
    told = [worker for worker in workers if facts[worker.url].sources]
    with contextlib.suppress(TimeoutError):
        await until_followed(*told, within_s=2.0)
