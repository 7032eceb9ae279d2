"""When a worker is asked for proof: at once, after a restart, and again and again."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway import proving
from gateway.config import Config
from gateway.contact import WorkerFacts
from gateway.proving import Proving
from render import Renderer
from render.shape import FEATURES
from router.pool import WorkerPool
from router.proof import NOT_ASKED, Blocker, Proof
from router.states import DOWN_AFTER
from router.worker import Worker, WorkerSpec
from simworker.options import SimOptions
from tests.gateway.templates import OTHER, rendering
from tests.running import SIM, WITH_EVENTS, Running, StartGateway, StartWorker, until

PROVEN = Proof(by="probes", shapes=frozenset())
BY_DIGEST = Proof(by="digest")
DIFFERS = Blocker(reason="probe_differs", detail="probe plain differs at position 3")
AWAY = Blocker(reason="unreachable", detail="/tokenize: no answer in time")
FACTS = WorkerFacts(models=(), listing=(), engine="vllm", started_at=1.0)
NOON = 1_800_000_000.0
"""A quarter of an hour begins."""


class Rig:
    """A worker, what is known of it, and answers to the question for proof."""

    def __init__(self, *answers: Proof | Blocker) -> None:
        self.pool = WorkerPool(clock=self.clock)
        self.worker = self.pool.add(WorkerSpec(url="http://w:1"))
        self.pool.answered(self.worker)
        self.facts = {self.worker.url: FACTS}
        self.answers = list(answers)
        self.now = 0.0
        self.asked: list[float] = []
        self.seen: list[Proof | Blocker] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.plan: list[tuple[float, Callable[[], object]]] = []

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something when the clock shows that."""
        self.plan.append((seconds, action))

    def clock(self) -> float:
        """Seconds, that pass with each look only."""
        return getattr(self, "now", 0.0)

    async def prove(self, asker: object, worker: Worker) -> Proof | Blocker:
        """The next of the answers, the last again and again."""
        self.asked.append(self.now)
        self.seen.append(worker.proof)
        self.meanwhile()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def restart(self) -> None:
        """What the gateway knows says that it is another process."""
        facts = self.facts[self.worker.url]
        started_at = float(facts.started_at or 0) + 1
        self.facts[self.worker.url] = msgspec.structs.replace(
            facts, started_at=started_at
        )


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


Steps = Callable[..., Any]


async def test_proven_once(steps: Steps) -> None:
    """A worker is asked at once, and where a day may begin; else left alone."""
    rig = Rig(PROVEN)
    await steps(rig, 880.0)
    assert rig.asked == [0.0]
    assert rig.worker.proof == PROVEN
    rig = Rig(PROVEN)
    await steps(rig, 3620.0)
    assert len(rig.asked) == 5
    begun = [(asked + 10.0) % 900.0 for asked in rig.asked[1:]]
    assert all(0.0 <= after <= 21.0 for after in begun)
    assert rig.seen[1:] == [PROVEN] * 4  # it stays proven meanwhile


async def test_fingerprints_are_read_again(steps: Steps) -> None:
    """A worker proven by its digest may have restarted: within ten seconds it shows."""
    rig = Rig(BY_DIGEST, BY_DIGEST, Blocker(reason="template_differs"))
    await steps(rig, 60.0)
    gaps = [after - at for at, after in zip(rig.asked, rig.asked[1:], strict=False)]
    assert all(6.0 < gap < 10.0 for gap in gaps)
    assert len(set(gaps)) > 1  # not all workers in step
    assert rig.worker.proof == Blocker(reason="template_differs")


async def test_restarts(steps: Steps) -> None:
    """Another process is not what was proven, and asked at once."""
    rig = Rig(PROVEN, DIFFERS)
    rig.at(5.0, rig.restart)
    await steps(rig, 6.0)
    assert rig.asked == [0.0, 5.0]
    assert rig.seen == [NOT_ASKED, NOT_ASKED]
    assert rig.worker.proof == DIFFERS


async def test_pages_that_fail(steps: Steps) -> None:
    """A start that is not told for a while is no restart."""
    rig = Rig(PROVEN, DIFFERS)
    untold = msgspec.structs.replace(FACTS, started_at=None)
    rig.at(5.0, lambda: rig.facts.update({rig.worker.url: untold}))
    rig.at(9.0, lambda: rig.facts.update({rig.worker.url: FACTS}))
    await steps(rig, 20.0)
    assert rig.asked == [0.0]
    assert rig.worker.proof == PROVEN


async def test_a_restart_meanwhile(steps: Steps) -> None:
    """What a worker answered before it restarted is not written down."""
    rig = Rig(PROVEN, DIFFERS)

    def restart_once() -> None:
        rig.meanwhile = lambda: None
        rig.restart()

    rig.meanwhile = restart_once
    await steps(rig, 2.0)
    assert rig.asked == [0.0, 0.5]
    assert rig.seen == [NOT_ASKED, NOT_ASKED]
    assert rig.worker.proof == DIFFERS


async def test_back_off(steps: Steps) -> None:
    """A worker that does not answer is asked less and less often."""
    rig = Rig(AWAY)
    await steps(rig, 400.0)
    gaps = [after - at for at, after in zip(rig.asked, rig.asked[1:], strict=False)]
    assert gaps[0] < 2.0 < gaps[2] < gaps[4] < 25.0
    assert all(23.0 < gap < 37.0 for gap in gaps[6:])
    assert rig.worker.proof == AWAY


async def test_one_failure_is_borne(steps: Steps) -> None:
    """A proven worker that is slow for once stays proven; not for twice."""
    rig = Rig(BY_DIGEST, AWAY, BY_DIGEST)
    await steps(rig, 60.0)
    assert set(rig.seen[1:]) == {BY_DIGEST}
    rig = Rig(BY_DIGEST, AWAY, AWAY, BY_DIGEST)
    await steps(rig, 60.0)
    assert rig.seen[:4] == [NOT_ASKED, BY_DIGEST, BY_DIGEST, AWAY]
    assert rig.worker.proof == BY_DIGEST


async def test_ids_rejected_stays(steps: Steps) -> None:
    """A worker that rejected ids is not proven by what it says, until a restart."""
    rejected = Blocker(reason="ids_rejected")
    rig = Rig(BY_DIGEST)
    rig.at(10.0, lambda: setattr(rig.worker, "proof", rejected))
    seen: list[Proof | Blocker] = []
    rig.at(50.0, lambda: seen.append(rig.worker.proof))
    rig.at(50.0, rig.restart)
    await steps(rig, 52.0)
    assert len(rig.asked) > 3
    assert seen == [rejected]
    assert rig.worker.proof == BY_DIGEST


async def test_workers_that_are_away(steps: Steps) -> None:
    """One that is down is not asked, and what was proven of it is forgotten."""
    rig = Rig(PROVEN, DIFFERS)
    seen: list[Proof | Blocker] = []

    def fail() -> None:
        for _ in range(DOWN_AFTER):
            rig.worker.on_trial = True
            rig.pool.failed(rig.worker, "refused")

    rig.at(5.0, fail)
    rig.at(40.0, lambda: seen.append(rig.worker.proof))
    rig.at(40.0, lambda: rig.pool.answered(rig.worker))
    await steps(rig, 41.0)
    assert seen == [NOT_ASKED]
    assert rig.asked == [0.0, 40.0]
    assert rig.worker.proof == DIFFERS


async def test_suspects_are_not_asked(steps: Steps) -> None:
    """One that failed to connect once keeps its proof until it is back, or down."""
    rig = Rig(BY_DIGEST, PROVEN)
    seen: list[Proof | Blocker] = []
    rig.at(1.0, lambda: rig.pool.failed(rig.worker, "refused"))
    rig.at(30.0, lambda: seen.append(rig.worker.proof))
    rig.at(30.0, lambda: rig.pool.answered(rig.worker))
    await steps(rig, 31.0)
    assert seen == [BY_DIGEST]
    assert rig.asked == [0.0, 30.0]
    assert rig.worker.proof == PROVEN


async def test_no_contact_yet(steps: Steps) -> None:
    """A worker that was never contacted is pending."""
    rig = Rig(PROVEN)
    rig.facts.clear()
    await steps(rig, 30.0)
    assert rig.asked == []
    assert rig.worker.proof == NOT_ASKED


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
    assert not [r for r in caplog.records if r.name == "gateway.proving"]


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
