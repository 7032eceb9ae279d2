"""A simulated TensorRT-LLM worker."""

import msgspec
import pytest

from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.conftest import FAST

TRTLLM: SimOptions = msgspec.structs.replace(FAST, engine="trtllm")


@pytest.fixture
async def worker(start_worker: StartWorker) -> SimWorker:
    """A fast worker with its default options."""
    return await start_worker(TRTLLM)
