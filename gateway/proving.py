"""When each worker is asked for proof that it renders alike: at once, and again.

A task per worker. It looks twice a second whether what the gateway knows of the worker
says that it may be another process than the one that was proven; asks then, and now and
then in any case; and writes down what came out. Its log lines are the verdict's.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping

import aiohttp
import msgspec

from gateway.asking import Asker
from gateway.config import Config
from gateway.contact import WorkerFacts
from gateway.prover import DAYS_BEGIN_S, Prover
from router.proof import IDS_REJECTED, NOT_ASKED, PENDING, Blocker, Proof
from router.worker import Worker, WorkerState

log = logging.getLogger(__name__)

LOOK_S = 0.5
FIRST_RETRY_S = 1.0
RETRY_LIMIT_S = 30.0
FINGERPRINT_S = 8.0
"""Until a fingerprint is read again: a restart that nothing else shows."""
SPREAD_S = 20.0
"""Where a day may begin it is compared again, but not with all workers at once."""
AT_ONCE = 32
"""Workers that are asked at the same time."""
FAILURES_BORNE = 1
AWAY = (WorkerState.joining, WorkerState.down)
RETRIED = frozenset({"unreachable", "unauthorised", "probe_failed"})
BY_FINGERPRINT = frozenset(
    {
        "no_fingerprint",
        "own_processor",
        "incomplete",
        "library_differs",
        "model_type_differs",
        "template_differs",
        "tokenizer_differs",
    }
)


class Sighting(msgspec.Struct, frozen=True):
    """What was known of a worker when it was asked."""

    process: tuple[object, ...]
    """Another one is another process."""
    since: float
    models: tuple[object, ...]


class Proving:
    """Keeps `worker.proof` up to date."""

    def __init__(
        self,
        config: Config,
        prover: Prover,
        facts: Mapping[str, WorkerFacts],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        """`facts` is what each worker said last, by URL."""
        self._config = config
        self._prover = prover
        self._facts = facts
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng or random.Random()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._starts: dict[str, float | str] = {}

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Prove one worker whenever that is due, until cancelled."""
        asker = Asker(session, worker.url, self._config.worker_api_key)
        before: Sighting | None = None
        due, failures = 0.0, 0
        while True:
            now = self._sighting(worker)
            if now is None or worker.state in AWAY:
                worker.proof = NOT_ASKED  # one that is away may come back as another
            elif worker.state is not WorkerState.suspect and (
                now != before or self._clock() >= due
            ):
                if before is None or now.process != before.process:
                    failures = 0
                    worker.proof = NOT_ASKED
                async with self._at_once:
                    found = await self._prover.prove(asker, worker)
                before = now
                if now == self._sighting(worker):  # else it is asked again at once
                    failures = failures + 1 if _failed(found) else 0
                    self._write_down(worker, found, failures)
                due = self._clock() + self._wait(found, failures)
            await asyncio.sleep(LOOK_S)

    def _sighting(self, worker: Worker) -> Sighting | None:
        """None for a worker that was never contacted."""
        facts = self._facts.get(worker.url)
        if facts is None:
            return None
        if facts.started_at is not None:  # a page that failed now tells no restart
            self._starts[worker.url] = facts.started_at
        restarts = sum(k.feed.counters.restarts for k in worker.knowledge.values())
        started = self._starts.get(worker.url)
        return Sighting(
            (started, worker.version, worker.engine, restarts),
            worker.since,
            facts.models,
        )

    def _write_down(
        self, worker: Worker, found: Proof | Blocker, failures: int
    ) -> None:
        known = worker.proof
        if isinstance(known, Blocker) and known.reason == IDS_REJECTED:
            return  # until it is another process: it proved the opposite
        if isinstance(known, Proof) and 0 < failures <= FAILURES_BORNE:
            return  # it is the process that was proven, and slow for once
        if found != known:
            log.debug("worker %s: %s", worker.url, found)
            worker.proof = found

    def _wait(self, found: Proof | Blocker, failures: int) -> float:
        """Seconds until the worker is asked again."""
        if isinstance(found, Blocker) and found.reason == PENDING:
            return LOOK_S
        days_begin = DAYS_BEGIN_S - self._wall_clock() % DAYS_BEGIN_S
        days_begin += self._rng.uniform(0.0, SPREAD_S)
        jitter = self._rng.uniform(0.8, 1.2)
        if failures:
            wait = FIRST_RETRY_S * 2.0 ** min(failures - 1, 10)
            return min(wait, RETRY_LIMIT_S) * jitter
        if _by_fingerprint(found):
            return min(FINGERPRINT_S * jitter, days_begin)
        return days_begin


def _failed(found: Proof | Blocker) -> bool:
    return isinstance(found, Blocker) and found.reason in RETRIED


def _by_fingerprint(found: Proof | Blocker) -> bool:
    if isinstance(found, Proof):
        return found.by == "digest"
    return found.reason in BY_FINGERPRINT
