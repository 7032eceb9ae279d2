"""What the tests of proofs share: workers as a gateway knows them, and a clock."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from gateway.workers.contact import WorkerFacts
from render.fingerprint import Fingerprint
from router.models import ModelName
from router.policies import RoundRobin
from router.pool import WorkerPool
from router.proof import Blocker, Proof
from router.router import Router
from router.worker import Worker, WorkerSpec
from simworker.server import SimWorker
from tests.running import SIM, StartWorker

Prove = Callable[..., Awaitable[Proof | Blocker]]
Steps = Callable[..., Any]
UNREAD = {"reasoning_effort", "documents", "truncation", "tool_choice_none"}
"""What vLLM's /tokenize does not read."""
PROVEN = Proof(by="probes", shapes=frozenset())
WIDE = Proof(by="probes", shapes=frozenset({"system", "documents"}))
BY_DIGEST = Proof(by="digest")
DIFFERS = Blocker(reason="probe_differs", detail="probe plain differs at position 3")
AWAY = Blocker(reason="unreachable", detail="/tokenize: no answer in time")
FACTS = WorkerFacts(models=(), listing=(), engine="vllm", started_at=1.0)
NOON = 1_800_000_000.0
"""A quarter of an hour begins."""


class Own:
    """The fingerprint that this gateway has of its models."""

    def __init__(self, found: Fingerprint | None) -> None:
        self._found = found

    def current(self, model: str) -> Fingerprint | None:
        """The one there is."""
        return self._found

    def problem(self, model: str) -> str | None:
        """There will be none but that."""
        return None


def known(url: str, engine: str, version: str | None, names: tuple[str, ...]) -> Worker:
    """A worker as a gateway knows it."""
    worker = WorkerPool(clock=lambda: 0.0).add(WorkerSpec(url=url))
    worker.engine = engine
    worker.profile = engine if engine != "generic" else "vllm"
    worker.version = version
    worker.names = {name: ModelName(base=name) for name in names}
    return worker


async def started(start_worker: StartWorker, **options: Any) -> SimWorker:
    """A simulated worker."""
    return await start_worker(msgspec.structs.replace(SIM, **options))


def reason(found: Proof | Blocker) -> str:
    """The word of a blocker."""
    assert isinstance(found, Blocker), found
    return found.reason


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
        self.rendered: list[str] = []
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
