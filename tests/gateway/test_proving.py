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
from router.policies import RoundRobin
from router.pool import WorkerPool
from router.proof import NOT_ASKED, Blocker, Proof
from router.request import RouteRequest
from router.router import Router
from router.states import DOWN_AFTER
from router.worker import Worker, WorkerSpec
from simworker.options import SimOptions
from tests.gateway.templates import OTHER, rendering
from tests.running import SIM, WITH_EVENTS, Running, StartGateway, StartWorker, until

PROVEN = Proof(by="probes", shapes=frozenset())
WIDE = Proof(by="probes", shapes=frozenset({"system", "documents"}))
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
        self.few: list[bool] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.plan: list[tuple[float, Callable[[], object]]] = []

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something when the clock shows that."""
        self.plan.append((seconds, action))

    def clock(self) -> float:
        """Seconds, that pass with each look only."""
        return getattr(self, "now", 0.0)

    async def prove(
        self, asker: object, worker: Worker, *, few: bool
    ) -> Proof | Blocker:
        """The next of the answers, the last again and again."""
        self.asked.append(self.now)
        self.few.append(few)
        self.seen.append(worker.proof)
        self.meanwhile()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def router(self) -> Router:
        """What sends requests to the worker."""
        return Router(self.pool, RoundRobin(random.Random(), self.clock))

    def untold(self) -> None:
        """The worker does not tell when its process was started."""
        self.facts[self.worker.url] = msgspec.structs.replace(FACTS, started_at=None)

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
    assert all(5.0 < gap < 9.0 for gap in gaps)
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


async def test_no_start_is_told(steps: Steps) -> None:
    """A worker proven by probes is asked a few again: another answer ends the proof."""
    fewer = Proof(by="probes", shapes=frozenset({"system"}))
    rig = Rig(WIDE, fewer, fewer, DIFFERS)
    rig.untold()
    await steps(rig, 30.0)
    gaps = [after - at for at, after in zip(rig.asked, rig.asked[1:], strict=False)]
    assert all(5.0 < gap < 9.0 for gap in gaps)
    assert rig.few[:4] == [False, True, True, True]
    assert rig.seen[:4] == [NOT_ASKED, WIDE, WIDE, WIDE]  # a few prove what all did
    assert rig.worker.proof == DIFFERS
    assert not any(rig.few[4:])  # what may be proven now, all probes tell


async def test_all_probes_where_a_day_may_begin(steps: Steps) -> None:
    """A template may print the date for some shapes only."""
    rig = Rig(WIDE)
    rig.untold()
    await steps(rig, 920.0)
    assert rig.few.count(False) == 2
    assert 880.0 < rig.asked[rig.few.index(False, 1)] < 915.0


async def test_a_fingerprint_instead_of_probes(steps: Steps) -> None:
    """A worker that publishes one now is proven by it."""
    rig = Rig(WIDE, BY_DIGEST)
    rig.untold()
    await steps(rig, 12.0)
    assert rig.worker.proof == BY_DIGEST


async def test_a_failure_ends_the_proof(steps: Steps) -> None:
    """It may be another process; only when it fails again is that more than pending."""
    rig = Rig(BY_DIGEST, AWAY, BY_DIGEST)
    await steps(rig, 60.0)
    assert rig.seen[:4] == [NOT_ASKED, BY_DIGEST, NOT_ASKED, BY_DIGEST]
    assert rig.asked[2] - rig.asked[1] < 2.0
    rig = Rig(BY_DIGEST, AWAY, AWAY, BY_DIGEST)
    await steps(rig, 60.0)
    assert rig.seen[:4] == [NOT_ASKED, BY_DIGEST, NOT_ASKED, AWAY]
    assert rig.worker.proof == BY_DIGEST


@pytest.mark.parametrize("kind", ["connect", "reset", "stale"])
async def test_doubts(steps: Steps, kind: str) -> None:
    """A request that met nobody, or a connection that broke, ends the proof at once."""
    rig = Rig(PROVEN, DIFFERS)
    router = rig.router()
    seen: list[Proof | Blocker] = []

    def request() -> None:
        decision = router.decide(RouteRequest(prompt_tokens=1))
        decision.sent()
        decision.failed(kind)
        seen.append(rig.worker.proof)

    rig.at(5.0, request)
    await steps(rig, 6.0)
    assert seen == [NOT_ASKED]
    assert rig.asked == [0.0, 5.0]
    assert rig.worker.proof == DIFFERS


@pytest.mark.parametrize("kind", ["timeout", "client", "status"])
async def test_no_doubts(steps: Steps, kind: str) -> None:
    """What no other process would show leaves it proven."""
    rig = Rig(PROVEN, DIFFERS)
    router = rig.router()

    def request() -> None:
        decision = router.decide(RouteRequest(prompt_tokens=1))
        decision.sent()
        decision.failed(kind)

    rig.at(5.0, request)
    await steps(rig, 6.0)
    assert rig.asked == [0.0]
    assert rig.worker.proof == PROVEN


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


async def test_suspects(steps: Steps) -> None:
    """One that failed once is pending, quietly; asked, and again when it is back."""
    rig = Rig(BY_DIGEST, AWAY, AWAY, PROVEN)
    seen: list[Proof | Blocker] = []
    rig.at(1.0, lambda: rig.pool.failed(rig.worker, "refused"))
    rig.at(1.0, lambda: seen.append(rig.worker.proof))
    rig.at(2.5, lambda: seen.append(rig.worker.proof))
    rig.at(30.0, lambda: seen.append(rig.worker.proof))
    rig.at(30.0, lambda: rig.pool.answered(rig.worker))
    rig.at(30.0, lambda: seen.append(rig.worker.proof))
    await steps(rig, 31.0)
    assert seen == [NOT_ASKED, NOT_ASKED, PROVEN, NOT_ASKED]
    assert rig.asked[:2] == [0.0, 1.0]
    assert rig.asked[-1] == 30.0
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
