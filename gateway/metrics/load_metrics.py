"""What workers say of their load, as metrics; a report that expired is not shown."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.metrics.registry import PREFIX
from router.pool import WorkerPool

LABELS = ("worker", "rank")


def load_metrics(pool: WorkerPool) -> Iterator[Metric]:
    """Every metric, with the values of now."""
    running = _gauge("reported_running_requests", "Requests a worker says it runs")
    waiting = _gauge("reported_waiting_requests", "Requests a worker says wait there")
    usage = _gauge(
        "reported_kv_usage_ratio", "Share of its KV cache that a worker says is in use"
    )
    others = _gauge(
        "others_waiting_tokens",
        "Uncached prompt tokens waiting at a worker that others sent, estimated",
    )
    for worker in pool.workers:
        for rank in sorted(worker.reports):
            report = worker.report(rank)
            if report is None:
                continue
            labels, load = [worker.url, str(rank)], report.load
            running.add_metric(labels, load.running)
            waiting.add_metric(labels, load.waiting)
            others.add_metric(labels, report.others_tokens)
            if load.kv_usage is not None:
                usage.add_metric(labels, load.kv_usage)
    yield from (running, waiting, usage, others)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=LABELS)
