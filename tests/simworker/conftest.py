"""Simulated workers on free ports, sharing one renderer of the built-in model."""

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from render import Renderer
from simworker.model import demo_model_dir
from simworker.options import SimOptions
from simworker.server import SimWorker

StartWorker = Callable[[SimOptions], Awaitable[SimWorker]]
FAST = SimOptions(port=0, speed=100.0)


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    """The built-in model's renderer; loading it takes a second."""
    return Renderer.load(demo_model_dir(tmp_path_factory.mktemp("model")))


@pytest.fixture
async def start_worker(renderer: Renderer) -> AsyncIterator[StartWorker]:
    """Start workers that are stopped at the end of the test."""
    workers: list[SimWorker] = []

    async def start(options: SimOptions) -> SimWorker:
        worker = SimWorker(options, renderer)
        await worker.start()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        await worker.stop()


@pytest.fixture
async def worker(start_worker: StartWorker) -> SimWorker:
    """A fast worker with its default options."""
    return await start_worker(FAST)


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client."""
    async with aiohttp.ClientSession() as session:
        yield session
