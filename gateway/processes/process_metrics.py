"""Metrics of the processes of a gateway, read by their parent at each scrape."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.metrics.registry import PREFIX
from gateway.processes.process import Process


def process_metrics(processes: Sequence[Process]) -> Callable[[], Iterator[Metric]]:
    """What reads them."""

    def read() -> Iterator[Metric]:
        restarts = CounterMetricFamily(
            PREFIX + "process_restarts",
            "Processes started anew as one had ended, where a gateway has several",
            labels=("process",),
        )
        for process in processes:
            restarts.add_metric([str(process.number)], process.restarts)
        yield restarts

    return read
