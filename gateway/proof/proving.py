"""When each worker is asked for proof that it renders alike: at once, and again.

A task per worker. It looks twice a second whether what the gateway knows of the worker
says that it may be another process than the one that was proven; asks then, and now and
then in any case; and writes down what came out. Whatever may mean another process ends
the proof at once (`Worker.doubt`). Its log lines are the verdict's.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping

import aiohttp
import msgspec

from gateway.proof.prover import DAYS_BEGIN_S, Prover
from gateway.settings.config import Config
from gateway.workers.asking import Asker
from gateway.workers.contact import WorkerFacts
from router.proof import (
    IDS_REJECTED,
    NOT_ASKED,
    ONLY_IDS,
    PENDING,
    Blocker,
    Proof,
)
from router.worker import TOKENS, Worker, WorkerState

log = logging.getLogger(__name__)

LOOK_S = 0.5
FIRST_RETRY_S = 1.0
RETRY_LIMIT_S = 30.0
AGAIN_S = 7.0
"""Until a fingerprint is read again, or a worker that does not tell the start of its
process is asked a few probes: a restart that nothing else shows, noticed in 10 s."""
SPREAD_S = 20.0
"""Where a day may begin it is compared again, but not with all workers at once."""
AT_ONCE = 32
"""Workers that are asked at the same time."""
AWAY = (WorkerState.joining, WorkerState.down)
RETRIED = frozenset({"unreachable", "unauthorised", "probe_failed"})
BY_FINGERPRINT = frozenset(
    {
        "no_fingerprint",
        "own_processor",
        "incomplete",
        "library_differs",
        "not_in_fingerprint",
        "clock",
        "model_type_differs",
        "template_differs",
        "tokenizer_differs",
    }
)


class Sighting(msgspec.Struct, frozen=True):
    """What was known of a worker when it was asked."""

    process: tuple[object, ...]
    """Another one may be another process."""
    models: tuple[object, ...]
    """What it lists, and which of all models are rendered here."""


class _Watched(msgspec.Struct):
    """When one worker was asked, and is to be asked again, by the clock."""

    before: Sighting | None = None
    due: float = 0.0
    all_due: float = 0.0
    """When all probes are; until then a few do, where nothing has happened."""
    failures: int = 0
    started_at: float | str | None = None
    """The start of its process, as it told last."""


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

    async def watch(self, session: aiohttp.ClientSession, worker: Worker) -> None:
        """Prove one worker whenever that is due, until cancelled."""
        watched = _Watched()
        while True:
            now = self._sighting(worker, watched)
            if worker.api == TOKENS:
                worker.proof = ONLY_IDS
            elif now is None or worker.state in AWAY:
                worker.proof = NOT_ASKED  # one that is away may come back as another
            elif now != watched.before or self._clock() >= watched.due:
                api_key = worker.api_key or self._config.worker_api_key
                asker = Asker(session, worker.url, api_key)
                await self._ask(asker, worker, watched, now)
            await asyncio.sleep(LOOK_S)

    async def _ask(
        self, asker: Asker, worker: Worker, watched: _Watched, now: Sighting
    ) -> None:
        """Ask for proof, and note when to ask again."""
        before, watched.before = watched.before, now
        if before is None or now.process != before.process:
            watched.failures = 0
            worker.proof = NOT_ASKED
        few = (
            now == before
            and _by_probes(worker.proof)
            and self._clock() < watched.all_due
        )
        async with self._at_once:
            found = await self._prover.prove(asker, worker, few=few)
        if now == self._sighting(worker, watched):  # else it is asked again at once
            watched.failures = watched.failures + 1 if _failed(found) else 0
            if not (few and _by_probes(found)):  # which proves all that was
                self._write_down(worker, found)
        asked = self._clock()
        if not few:
            watched.all_due = asked + self._until_days_begin()
        wait = self._wait(found, watched)
        watched.due = min(asked + wait, watched.all_due)

    def _sighting(self, worker: Worker, watched: _Watched) -> Sighting | None:
        """None for a worker that was never contacted."""
        facts = self._facts.get(worker.url)
        if facts is None:
            return None
        if facts.started_at is not None:  # a page that failed now tells no restart
            watched.started_at = facts.started_at
        restarts = sum(k.feed.counters.restarts for k in worker.knowledge.values())
        process = (watched.started_at, worker.version, worker.engine, restarts)
        models = (*facts.models, *self._prover.rendered)
        return Sighting((*process, worker.doubts, worker.since), models)

    def _write_down(self, worker: Worker, found: Proof | Blocker) -> None:
        known = worker.proof
        if isinstance(known, Blocker) and known.reason == IDS_REJECTED:
            return  # until it may be another process: it proved the opposite
        quiet = isinstance(known, Proof) or worker.state is WorkerState.suspect
        if quiet and _failed(found):  # if it fails again, or is back, it is said
            found = NOT_ASKED
        if found != known:
            log.debug("worker %s: %s", worker.url, found)
            worker.proof = found

    def _wait(self, found: Proof | Blocker, watched: _Watched) -> float:
        """Seconds until the worker is asked again."""
        if isinstance(found, Blocker) and found.reason == PENDING:
            return LOOK_S
        jitter = self._rng.uniform(0.8, 1.2)
        if watched.failures:
            wait = FIRST_RETRY_S * 2.0 ** min(watched.failures - 1, 10)
            return min(wait, RETRY_LIMIT_S) * jitter
        if _by_fingerprint(found) or watched.started_at is None:
            return AGAIN_S * jitter
        return DAYS_BEGIN_S + SPREAD_S

    def _until_days_begin(self) -> float:
        begins = DAYS_BEGIN_S - self._wall_clock() % DAYS_BEGIN_S
        return begins + self._rng.uniform(0.0, SPREAD_S)


def _failed(found: Proof | Blocker) -> bool:
    return isinstance(found, Blocker) and found.reason in RETRIED


def _by_probes(found: Proof | Blocker) -> bool:
    return isinstance(found, Proof) and found.by == "probes"


def _by_fingerprint(found: Proof | Blocker) -> bool:
    if isinstance(found, Proof):
        return found.by == "digest"
    return found.reason in BY_FINGERPRINT
