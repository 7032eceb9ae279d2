"""A simulated SGLang worker."""

import msgspec
import pytest

from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.conftest import FAST

SGLANG: SimOptions = msgspec.structs.replace(FAST, engine="sglang")


@pytest.fixture
async def worker(start_worker: StartWorker) -> SimWorker:
    """A fast worker with its default options."""
    return await start_worker(SGLANG)
