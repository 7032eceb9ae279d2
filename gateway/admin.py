"""What the gateway says of itself: readiness, models, workers, index, explain.

Read-only: nothing here sends a request or changes a state.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.account import Accounts
from gateway.errors import NoWorker
from gateway.monitor import Monitor
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from router.forwarding import Blocker, Forwarding, Proof, When
from router.pool import NoCandidate, WorkerPool
from router.request import RouteRequest
from router.router import Router
from router.worker import Worker, WorkerState


class Admin:
    """Reads what the gateway knows into JSON-ready values."""

    def __init__(
        self,
        *,
        pool: WorkerPool,
        indexes: Indexes,
        router: Router,
        monitor: Monitor,
        accounts: Accounts,
        forwarding: Forwarding,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is that of the pool and the feeds."""
        self._clock = clock
        self._pool = pool
        self._indexes = indexes
        self._router = router
        self._monitor = monitor
        self._accounts = accounts
        self._forwarding = forwarding

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

    def workers(self) -> dict[str, Any]:
        """`GET /gateway/workers`: each worker's state, load, feeds, hit tokens."""
        return {"workers": [self._worker(worker) for worker in self._pool.workers]}

    def _worker(self, worker: Worker) -> dict[str, Any]:
        now, sources = self._clock(), self._monitor.sources(worker)
        return {
            "url": worker.url,
            "engine": worker.engine,
            "version": worker.version,
            "models": sorted(worker.models),
            "state": worker.state,
            "reason": worker.reason,
            "state_s": round(now - worker.since, 3),
            "inflight_requests": worker.inflight_requests,
            "inflight_tokens": worker.inflight_tokens,
            "prefill_rate": worker.rate.tokens_per_s,
            "block_size": worker.block_size_of(worker.ranks[0]),
            "cache_blocks": worker.cache_blocks,
            "feeds": [
                {
                    "rank": rank,
                    "source": sources.named(rank),
                    "state": knowledge.feed.state,
                    "reason": knowledge.feed.reason,
                    "state_s": round(now - knowledge.feed.since, 3),
                    "complete": knowledge.feed.complete,
                    "last_sequence": knowledge.feed.last_sequence,
                }
                for rank, knowledge in sorted(worker.knowledge.items())
            ],
            "forwarding": _forwarding(self._forwarding.when, worker.proof),
            "predicted_hit_tokens": self._accounts.predicted.get(worker.url, 0),
            "delivered_hit_tokens": self._accounts.delivered.get(worker.url, 0),
        }

    def index(self) -> dict[str, Any]:
        """`GET /gateway/index`: blocks and bytes in all, and by owner."""
        owners = [
            self._owner(worker, rank, knowledge)
            for worker in self._pool.workers
            for rank, knowledge in sorted(worker.knowledge.items())
        ]
        return {
            "blocks": sum(index.blocks for index in self._indexes.all),
            "bytes": self._indexes.memory.used_bytes,
            "limit_bytes": self._indexes.memory.limit_bytes,
            "owners": owners,
        }

    def _owner(self, worker: Worker, rank: int, known: Knowledge) -> dict[str, Any]:
        owner = known.feed.owner
        return {
            **msgspec.to_builtins(known.feed.counters),
            "worker": worker.url,
            "rank": rank,
            "blocks": owner.blocks if owner else 0,
            "gpu_blocks": owner.gpu_blocks if owner else 0,
            "suspect_blocks": owner.suspect_blocks if owner else 0,
            "holes": owner.holes if owner else 0,
            "history_blocks": len(known.history),
            "last_sequence": known.feed.last_sequence,
        }

    def explain(self, request: RouteRequest) -> dict[str, Any]:
        """`POST /gateway/explain`: what would be chosen, and why; nothing is sent."""
        try:
            explanation = msgspec.to_builtins(self._router.explain(request))
        except NoCandidate as error:
            raise NoWorker(str(error)) from None
        return {
            "rendered": request.not_rendered is None,
            "reason": request.not_rendered,
            **explanation,
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
