"""What workers say of their load, as JSON-ready values for the admin pages."""

from typing import Any

from router.worker import Worker

OWN_LEDGER = "own requests"
"""Where else a load is known from: what this gateway has in flight there."""


def source(worker: Worker) -> str:
    """Where a worker's load is known from."""
    for rank in sorted(worker.reports):
        report = worker.report(rank)
        if report is not None:
            return report.source
    return OWN_LEDGER


def reported(worker: Worker, now: float) -> list[dict[str, Any]]:
    """Its reports that count, by rank; `now` is by the pool's clock."""
    fresh = {rank: worker.report(rank) for rank in sorted(worker.reports)}
    return [
        {
            "rank": rank,
            "running_requests": report.load.running,
            "waiting_requests": report.load.waiting,
            "kv_usage": report.load.kv_usage,
            "full": report.full,
            "others_tokens": report.others_tokens,
            "others_running_requests": round(report.others_running, 1),
            "age_s": round(now - report.at, 3),
        }
        for rank, report in fresh.items()
        if report is not None
    ]
