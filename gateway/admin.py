"""What the gateway says of itself: readiness, models, workers, index, explain.

Read-only: nothing here sends a request or changes a state.
"""

from typing import Any

import msgspec

from gateway.account import Accounts
from gateway.errors import NoWorker
from gateway.monitor import Monitor
from kvindex.index import Indexes
from router import pool
from router.pool import WorkerPool
from router.request import RouteRequest
from router.router import Router
from router.worker import Worker, WorkerState

USABLE = (WorkerState.ready, WorkerState.suspect)


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
    ) -> None:
        self._pool = pool
        self._indexes = indexes
        self._router = router
        self._monitor = monitor
        self._accounts = accounts

    def ready(self) -> bool:
        """Whether a request would find a worker that has answered."""
        return any(worker.state in USABLE for worker in self._pool.workers)

    def models(self) -> dict[str, Any]:
        """`GET /v1/models`: the union over workers that are not down, first wins."""
        entries: dict[str, dict[str, Any]] = {}
        workers = self._pool.workers
        up = [w for w in workers if w.state is not WorkerState.down] or workers
        for worker in up:
            facts = self._monitor.listings.get(worker.url)
            for entry in facts.listing if facts else ():
                entries.setdefault(str(entry.get("id")), entry)
        return {"object": "list", "data": list(entries.values())}

    def workers(self) -> dict[str, Any]:
        """`GET /gateway/workers`: each worker's state, load, feeds, hit tokens."""
        return {"workers": [self._worker(worker) for worker in self._pool.workers]}

    def _worker(self, worker: Worker) -> dict[str, Any]:
        return {
            "url": worker.url,
            "engine": worker.engine,
            "version": worker.version,
            "models": sorted(worker.models),
            "state": worker.state,
            "reason": worker.reason,
            "since": worker.since,
            "inflight_requests": worker.inflight_requests,
            "inflight_tokens": worker.inflight_tokens,
            "prefill_rate": worker.rate.tokens_per_s,
            "block_size": worker.block_size_of(worker.ranks[0]),
            "cache_blocks": worker.cache_blocks,
            "feeds": [
                {
                    "rank": rank,
                    "state": knowledge.feed.state,
                    "reason": knowledge.feed.reason,
                    "since": knowledge.feed.since,
                    "complete": knowledge.feed.complete,
                    "last_sequence": knowledge.feed.last_sequence,
                }
                for rank, knowledge in sorted(worker.knowledge.items())
            ],
            "predicted_hit_tokens": self._accounts.predicted.get(worker.url, 0),
            "delivered_hit_tokens": self._accounts.delivered.get(worker.url, 0),
        }

    def index(self) -> dict[str, Any]:
        """`GET /gateway/index`: blocks and bytes in all, and by owner."""
        owners = []
        for worker in self._pool.workers:
            for rank, knowledge in sorted(worker.knowledge.items()):
                feed, owner = knowledge.feed, knowledge.feed.owner
                owners.append(
                    {
                        "worker": worker.url,
                        "rank": rank,
                        "blocks": owner.blocks if owner else 0,
                        "gpu_blocks": owner.gpu_blocks if owner else 0,
                        "history_blocks": len(knowledge.history),
                        "last_sequence": feed.last_sequence,
                        **msgspec.to_builtins(feed.counters),
                        "orphans": feed.orphans,
                    }
                )
        return {
            "blocks": sum(index.blocks for index in self._indexes.all),
            "bytes": self._indexes.memory.used_bytes,
            "limit_bytes": self._indexes.memory.limit_bytes,
            "owners": owners,
        }

    def explain(self, request: RouteRequest) -> dict[str, Any]:
        """`POST /gateway/explain`: what would be chosen, and why; nothing is sent."""
        try:
            explanation = msgspec.to_builtins(self._router.explain(request))
        except pool.NoWorker as error:
            raise NoWorker(str(error)) from None
        return {
            "rendered": request.not_rendered is None,
            "reason": request.not_rendered,
            **explanation,
        }
