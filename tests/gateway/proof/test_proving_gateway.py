"""Proofs in a running gateway."""

import logging

import msgspec
import pytest

from render import Renderer
from render.shape import FEATURES
from router.proof import NOT_ASKED, Blocker, Proof
from simworker.options import SimOptions
from tests.gateway.templates import OTHER, rendering
from tests.running import SIM, WITH_EVENTS, Running, StartGateway, StartWorker, until


def proof(gateway: Running, number: int = 0) -> Proof | Blocker:
    """What is known of a worker's rendering."""
    return gateway.gateway.pool.workers[number].proof


def settled(gateway: Running, number: int = 0) -> bool:
    """Whether a worker was asked."""
    return proof(gateway, number) != NOT_ASKED


@pytest.mark.usefixtures("never_blocks")
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_in_a_gateway(
    engine: str,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Soon after the start a worker is proven by probes; nothing is logged of it."""
    caplog.set_level(logging.INFO)
    worker = await start_worker(msgspec.structs.replace(SIM, engine=engine))
    gateway = await start_gateway(worker)
    await until(lambda: settled(gateway))
    found = proof(gateway)
    assert isinstance(found, Proof), found
    assert found.shapes is not None
    assert found.shapes >= FEATURES - {
        "reasoning_effort",
        "documents",
        "truncation",
        "tool_choice_none",
    }
    assert not [r for r in caplog.records if r.name == "gateway.proof.proving"]


@pytest.mark.parametrize("options", [SIM, WITH_EVENTS])
async def test_a_worker_restarts(
    options: SimOptions,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    renderer: Renderer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process at its place is proven anew within ten seconds."""
    worker = await start_worker(options)
    gateway = await start_gateway(worker)
    await until(lambda: isinstance(proof(gateway), Proof))
    port = int(worker.url.rsplit(":", 1)[1])
    await worker.stop()
    other = rendering(renderer, OTHER)
    monkeypatch.setattr(renderer, "with_profile", lambda _: other)
    await start_worker(msgspec.structs.replace(options, port=port))
    differs = Blocker(
        reason="probe_differs", detail="probe plain differs at position 0"
    )
    await until(lambda: proof(gateway) == differs, within_s=10.0)
