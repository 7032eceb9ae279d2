"""A fleet of all three engines that proves itself: ids go, until somebody differs."""

import logging
from functools import partial

import pytest

from gateway import housekeeping
from gateway.proof import proving
from router.forwarding import Blocker, Proof
from simworker.trtllm.api import TrtllmApi
from simworker.trtllm.fingerprint import read_mode
from tests.gateway.forwarding_rig import TICK_S, USER, known, lines, sim, skipped
from tests.running import Running, StartGateway, StartWorker, until

ENGINES = ("vllm", "sglang", "trtllm")


@pytest.fixture(autouse=True)
def asked_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers are asked for proof, and blockers looked at, all the time."""
    monkeypatch.setattr(housekeeping, "TICK_S", TICK_S)
    monkeypatch.setattr(proving, "LOOK_S", TICK_S)
    monkeypatch.setattr(proving, "AGAIN_S", TICK_S)
    monkeypatch.setattr(proving, "FIRST_RETRY_S", TICK_S)
    caplog.set_level(logging.INFO, "router.blockers")


def proven(gateway: Running) -> bool:
    """Whether every worker is."""
    workers = gateway.gateway.pool.workers
    return all(isinstance(worker.proof, Proof) for worker in workers)


async def test_it_proves_itself_and_each_blocker_is_said_once(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By digest and probes; one warning for each reason, one line when it clears."""
    workers = [await start_worker(sim(engine)) for engine in ENGINES]
    gateway = await start_gateway(*workers, policy="round_robin")
    await until(lambda: proven(gateway), within_s=30.0)
    for _ in ENGINES:
        await gateway.chat([USER])
    assert skipped(*workers) == [1, 1, 1]
    assert await lines(caplog) == []

    trtllm = workers[-1]
    api = trtllm.api
    assert isinstance(api, TrtllmApi)
    for mode, reason in (
        ("missing", "no_fingerprint"),
        ("incomplete", "incomplete"),
        ("unauthorised", "unauthorised"),
        ("error", "unreachable"),
        ("differs:templates.server", "template_differs"),
        ("differs:tokenizer.vocab_sha256", "tokenizer_differs"),
        ("differs:model_type", "model_type_differs"),
        ("differs:input_processor", "own_processor"),
        ("differs:tokenizer.class", "library_differs"),
    ):
        caplog.clear()
        api.mode = read_mode(mode)
        await until(partial(_blocked, gateway, trtllm.url, reason))
        (line,) = await lines(caplog)
        assert f"{trtllm.url} {reason}" in line
        labels = {"worker": trtllm.url, "reason": reason}
        assert await gateway.metric("forwarding_blocked", **labels) == 1
        await gateway.chat([USER])
    assert skipped(*workers) == [1, 1, 1]

    caplog.clear()
    api.mode = read_mode("equal")
    await until(lambda: proven(gateway))
    (line,) = await lines(caplog)
    assert "again" in line
    assert await gateway.metric("forwarding_blocked") == 0
    for _ in ENGINES:
        await gateway.chat([USER])
    assert skipped(*workers) == [2, 2, 2]


def _blocked(gateway: Running, url: str, reason: str) -> bool:
    proof = known(gateway, url).proof
    return isinstance(proof, Blocker) and proof.reason == reason
