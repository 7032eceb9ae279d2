"""Metrics of where workers come from, read at each scrape."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.discovery.standing import SourceStanding
from gateway.metrics.registry import PREFIX


def source_metrics(
    counts: Mapping[str, int], standings: Iterable[SourceStanding]
) -> Iterator[Metric]:
    """How many workers each source names, and how it goes with those followed."""
    named = GaugeMetricFamily(
        PREFIX + "named_workers",
        "Workers that a source names: options, files, the API, DNS, Kubernetes",
        labels=("source",),
    )
    for source, count in counts.items():
        named.add_metric([source], count)
    yield named
    yield from _of_standings(standings)


def _of_standings(standings: Iterable[SourceStanding]) -> Iterator[Metric]:
    succeeded = GaugeMetricFamily(
        PREFIX + "discovery_success_timestamp_seconds",
        "When a source of workers last told who they are; 0: never yet",
        labels=("source",),
    )
    failures = CounterMetricFamily(
        PREFIX + "discovery_failures",
        "Times that a source of workers could not be asked, or was not understood",
        labels=("source", "reason"),
    )
    for standing in standings:
        succeeded.add_metric([standing.name], standing.succeeded_at)
        for reason, count in standing.failures.items():
            failures.add_metric([standing.name, reason], count)
    yield from (succeeded, failures)
