"""Whether each worker renders alike is found out, and again after a restart."""

import msgspec
import pytest

from render.shape import FEATURES
from router.forwarding import Blocker, Proof
from tests.running import SIM, Running, StartGateway, StartWorker, until

pytestmark = pytest.mark.usefixtures("never_blocks")


def proof(gateway: Running, number: int = 0) -> Proof | Blocker:
    """What is known of a worker's rendering."""
    return gateway.gateway.pool.workers[number].proof


def settled(gateway: Running, number: int = 0) -> bool:
    """Whether a worker was asked."""
    found = proof(gateway, number)
    return isinstance(found, Proof) or found.reason != "pending"


async def test_vllm_is_proven_by_tokenize(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What /tokenize reads is proven; what it ignores is not."""
    gateway = await start_gateway(await start_worker())
    await until(lambda: settled(gateway))
    found = proof(gateway)
    assert isinstance(found, Proof), found
    assert found.by == "probes"
    unread = {"reasoning_effort", "documents", "truncation", "tool_choice_none"}
    assert found.shapes == FEATURES - unread


@pytest.mark.parametrize("engine", ["sglang"])
async def test_others(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker = await start_worker(msgspec.structs.replace(SIM, engine=engine))
    gateway = await start_gateway(worker)
    await until(lambda: settled(gateway))
    found = proof(gateway)
    assert isinstance(found, Proof), found
    assert found.shapes == FEATURES, FEATURES - (found.shapes or set())
