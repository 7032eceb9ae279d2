"""Simulated workers on free ports, sharing one renderer of the built-in model."""

import pytest

from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.running import StartWorker

FAST = SimOptions(port=0, speed=100.0)


@pytest.fixture
async def worker(start_worker: StartWorker) -> SimWorker:
    """A fast worker with its default options."""
    return await start_worker(FAST)
