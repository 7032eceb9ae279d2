"""Provers and clocks for the tests of proofs."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from gateway.models import Renderers
from gateway.proof import proving
from gateway.proof.prover import Prover
from gateway.proof.proving import Proving
from gateway.settings.config import Config
from gateway.threads import Threads
from gateway.workers.asking import Asker
from render import Renderer
from render.fingerprint import Fingerprint, digest
from router.proof import Blocker, Proof
from simworker.trtllm.fingerprint import compared_fields
from tests.gateway.proof.rig import NOON, Own, Prove, Rig, known
from tests.running import (
    MODEL,
)


@pytest.fixture
def renderers(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> Renderers:
    """The shared renderer as a gateway holds it."""
    found = Renderers(Config(model=((None, MODEL),)))
    with monkeypatch.context() as patched:
        patched.setattr(Renderer, "load", lambda *_, **__: renderer)
        found.load_configured()
    return found


@pytest.fixture(scope="module")
def own(renderer: Renderer) -> Fingerprint:
    """The fingerprint that simulated TensorRT-LLM workers tell of that model."""
    compared = compared_fields(renderer)
    assert compared is not None
    return Fingerprint(digest=digest(compared), compared=compared)


@pytest.fixture
async def prove(
    renderers: Renderers, client: aiohttp.ClientSession
) -> AsyncIterator[Prove]:
    """Prove a worker by its URL, as an engine; any option of `Config` by name."""
    threads = Threads(threads=1, queue=8, deadline=5.0)

    async def run(
        url: str,
        engine: str = "vllm",
        *,
        version: str | None = "0.32.0",
        own: Fingerprint | None = None,
        names: tuple[str, ...] = (MODEL,),
        within_s: float = 10.0,
        **options: Any,
    ) -> Proof | Blocker:
        worker = known(url, engine, version, names)
        prover = Prover(Config(**options), renderers, threads, Own(own))
        timeout = aiohttp.ClientTimeout(total=within_s)
        return await prover.prove(Asker(client, url, None, timeout=timeout), worker)

    yield run
    threads.close()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Watch the worker of a rig for so many seconds of its clock."""
    real_sleep = asyncio.sleep

    async def run(rig: Rig, seconds: float, wall: float = NOON + 10.0) -> None:
        async def sleep(delay: float) -> None:
            rig.now += delay
            await real_sleep(0)
            due = [action for at, action in rig.plan if at <= rig.now]
            rig.plan = [entry for entry in rig.plan if entry[0] > rig.now]
            for action in due:
                action()
            if rig.now >= seconds:
                raise asyncio.CancelledError

        monkeypatch.setattr(
            proving,
            "asyncio",
            SimpleNamespace(sleep=sleep, Semaphore=asyncio.Semaphore),
        )
        watching = Proving(
            Config(),
            rig,  # type: ignore[arg-type]
            rig.facts,
            clock=rig.clock,
            wall_clock=lambda: wall + rig.now,
            rng=random.Random(1),
        )
        with contextlib.suppress(asyncio.CancelledError):
            async with aiohttp.ClientSession() as session:
                await watching.watch(session, rig.worker)

    return run
