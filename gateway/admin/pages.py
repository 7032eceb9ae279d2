"""What the gateway says of itself: readiness, models, workers, index.

Read-only: nothing here sends a request or changes a state.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gateway.admin import knowledge_pages, load_page
from gateway.metrics.comparison import Comparison
from gateway.request.account import Accounts
from gateway.workers.monitor import Monitor
from gateway.workers.namings import Namings
from kvindex.index import Indexes
from router.forwarding import Blocker, Forwarding, Proof, When
from router.pool import WorkerPool
from router.worker import Worker, WorkerState

AT_ONCE = 8
"""Workers that are read in one go."""


class Admin:
    """Reads what the gateway knows into JSON-ready values."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        indexes: Indexes,
        monitor: Monitor,
        accounts: Accounts,
        forwarding: Forwarding,
        namings: Namings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is that of the pool and the feeds."""
        self._clock = clock
        self._pool = pool
        self._indexes = indexes
        self._monitor = monitor
        self._accounts = accounts
        self._forwarding = forwarding
        self._namings = namings

    def ready(self) -> bool:
        """Whether a request would find a worker that has answered."""
        return any(map(self._has_answered, self._pool.workers))

    def _has_answered(self, worker: Worker) -> bool:
        if worker.state is WorkerState.suspect:  # also one that never said a word
            return worker.url in self._monitor.facts
        return worker.state is WorkerState.ready

    def models(self) -> dict[str, Any]:
        """`GET /v1/models`: the union over workers that are not down, first wins."""
        entries: dict[str, dict[str, Any]] = {}
        workers = self._pool.workers
        up = [w for w in workers if w.state is not WorkerState.down] or workers
        for worker in up:
            facts = self._monitor.facts.get(worker.url)
            for entry in facts.listing if facts else ():
                entries.setdefault(str(entry.get("id")), entry)
        return {"object": "list", "data": list(entries.values())}

    async def workers(self) -> dict[str, Any]:
        """`GET /gateway/workers`: each worker's state, load, feeds, hit tokens.

        Some at a time: all of a large fleet would hold up the event loop.
        """
        entries = []
        for number, worker in enumerate(self._pool.workers, start=1):
            entries.append(self._worker(worker))
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return {"workers": entries}

    def _worker(self, worker: Worker) -> dict[str, Any]:
        now, wall = self._clock(), time.time()
        sources = self._monitor.sources(worker)
        return {
            "url": worker.url,
            "named_by": self._namings.sources(worker.url),
            "engine": worker.engine,
            "api": worker.api,
            "version": worker.version,
            "models": sorted(worker.models),
            "state": worker.state,
            "reason": worker.reason,
            "state_s": round(now - worker.since, 3),
            "since": knowledge_pages.moment(wall - (now - worker.since)),
            "inflight_requests": worker.inflight_requests,
            "inflight_tokens": worker.inflight_tokens,
            "prefill_rate": worker.rate.tokens_per_s,
            "prefill_rate_source": worker.rate.source,
            "block_size": worker.block_size_of(worker.ranks[0]),
            "cache_blocks": worker.cache_blocks,
            "load_source": load_page.source(worker),
            "load": load_page.reported(worker, now),
            "feeds": [
                knowledge_pages.feed(
                    rank,
                    known,
                    source=sources.named(rank),
                    elsewhere=sources.elsewhere,
                    now=now,
                    wall=wall,
                )
                for rank, known in sorted(worker.knowledge.items())
            ],
            "forwarding": _forwarding(self._forwarding.when, worker.proof),
            **_hits(self._accounts.of(worker.url)),
        }

    def index(self) -> dict[str, Any]:
        """`GET /gateway/index`: blocks and bytes in all, and by owner."""
        owners = [
            knowledge_pages.owner(worker.url, rank, known)
            for worker in self._pool.workers
            for rank, known in sorted(worker.knowledge.items())
        ]
        indexes = self._indexes.all
        return {
            "blocks": sum(index.blocks for index in indexes),
            "bytes": self._indexes.memory.used_bytes,
            "limit_bytes": self._indexes.memory.limit_bytes,
            "refused": sum(index.refused for index in indexes),
            "owners": owners,
        }


def _hits(comparison: Comparison) -> dict[str, Any]:
    """What was predicted of a worker, against what it delivered."""
    return {
        "predicted_hit_tokens": comparison.predicted,
        "delivered_hit_tokens": comparison.delivered,
        "reports_cached_tokens": comparison.reports,
        "agreement": comparison.agreement,
        "recent_predicted_hit_tokens": round(comparison.recent_predicted, 1),
        "recent_delivered_hit_tokens": round(comparison.recent_delivered, 1),
        "prompt_token_fates": comparison.fates,
        "uncompared_requests": comparison.uncompared,
    }


def _forwarding(when: When, proof: Proof | Blocker) -> dict[str, Any]:
    """A worker's own part in it: whether it may be sent ids, and by what proof."""
    if when == "never":
        return {"allowed": False, "reason": "switched_off"}
    if isinstance(proof, Blocker):
        return {"allowed": False, "reason": proof.reason, "detail": proof.detail}
    shapes = None if proof.shapes is None else sorted(proof.shapes)
    return {
        "allowed": True,
        "reason": None,
        "proven_by": proof.by,
        "proven_shapes": shapes,
    }
