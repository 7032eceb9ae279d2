"""Prometheus metrics of one server: what was predicted and delivered, how fast.

Counters and histograms are written where things happen; gauges of workers, feeds and
the index are read when somebody scrapes (see `watch`). No label takes a value a client
chose: endpoints, reasons and kinds are names of ours, workers and clients are those
configured.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "kv_gateway_"
M = TypeVar("M", Counter, Histogram)
FAST = (
    0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
)  # fmt: skip
SLOW = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip


AT_ONCE = 128
"""Samples written in one go."""
SERIES = 8
"""Histograms read in one go: each has a sample for each of its buckets."""


class ServerMetrics:
    """What every server of ours writes, in a registry of its own."""

    def __init__(self) -> None:
        # Series of creation times double the page and tell nothing here.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # theirs is not
        self.registry = CollectorRegistry(auto_describe=True)
        self.requests = self._counter(
            "requests", "Requests answered", ("endpoint", "status")
        )
        self.request_seconds = self._times(
            "request_seconds", "From request to end of answer", ("endpoint",)
        )
        self.render_seconds = self._time(
            "render_seconds", "Rendering a request, waiting included"
        )
        self.errors = self._counter(
            "internal_errors", "Faults of the gateway itself, each logged", ("where",)
        )
        self.spans_exported = self._count("spans_exported", "Spans that were exported")
        self.spans_dropped = self._count(
            "spans_dropped", "Spans that the collector did not take, or not in time"
        )

    def _count(self, name: str, text: str) -> Counter:
        return Counter(PREFIX + name, text, registry=self.registry)

    def _counter(
        self, name: str, text: str, labels: tuple[str, ...]
    ) -> "Labelled[Counter]":
        counter = Counter(PREFIX + name, text, labels, registry=self.registry)
        return Labelled(counter)

    def _time(self, name: str, text: str) -> Histogram:
        return Histogram(PREFIX + name, text, buckets=FAST, registry=self.registry)

    def _times(
        self, name: str, text: str, labels: tuple[str, ...]
    ) -> "Labelled[Histogram]":
        name = PREFIX + name
        labelled = Labelled(Histogram(name, text, labels, buckets=SLOW, registry=None))
        self.watch(labelled.read)
        return labelled

    def watch(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Add metrics that are read at each scrape."""
        self.registry.register(_Reader(read))

    async def exposition(self) -> bytes:
        """The page of `GET /metrics`, in Prometheus' text format.

        Written piece by piece: a large fleet's page takes longer than the event loop
        may be held.
        """
        parts, before = [], b""
        for metric in self.registry.collect():
            head = _text(metric, 0, 0)
            parts.append(b"" if head == before else head)
            before = head
            for start in range(0, max(1, len(metric.samples)), AT_ONCE):
                text = _text(metric, start, start + AT_ONCE)
                parts.append(text.removeprefix(head))
                await asyncio.sleep(0)
        return b"".join(parts)


class Metrics(ServerMetrics):
    """Every metric the gateway writes."""

    def __init__(self) -> None:
        super().__init__()
        self._times_of_a_request()
        self._tokens()
        self._troubles()

    def _times_of_a_request(self) -> None:
        self.first_token_seconds = self._times(
            "first_token_seconds",
            "From request to the first event of a streamed answer",
            ("worker",),
        )
        self.template_seconds = self._time(
            "template_seconds", "Applying the chat template"
        )
        self.tokenize_seconds = self._time(
            "tokenize_seconds", "Turning text into token ids"
        )
        self.match_seconds = self._time(
            "match_seconds", "Finding held prefixes in the index"
        )
        self.decide_seconds = self._time(
            "decide_seconds", "Choosing a worker, matching included"
        )
        self.event_loop_lag_seconds = self._time(
            "event_loop_lag_seconds", "How late a timer of the event loop fires"
        )

    def _tokens(self) -> None:
        self.prompt_tokens = self._counter(
            "prompt_tokens", "Prompt tokens of requests answered whole", ("worker",)
        )
        self.reported_prompt_tokens = self._counter(
            "reported_prompt_tokens",
            "Prompt tokens of requests whose worker reported cached tokens: the "
            "denominator of the hit rates",
            ("worker",),
        )
        self.predicted_hit_tokens = self._counter(
            "predicted_hit_tokens",
            "Prompt tokens the decision took as held by the chosen worker",
            ("worker",),
        )
        self.best_hit_tokens = self._counter(
            "best_hit_tokens",
            "Prompt tokens held by the candidate that held most",
            ("worker",),
        )
        self.delivered_hit_tokens = self._counter(
            "delivered_hit_tokens",
            "Prompt tokens the worker reported as cached",
            ("worker",),
        )
        self.prediction_error_tokens = self._counter(
            "prediction_error_tokens",
            "Difference of predicted and delivered hit tokens, summed over requests",
            ("worker",),
        )
        self.prompt_token_fates = self._counter(
            "prompt_token_fates",
            "What became of the reported prompt tokens: the fates add up to them",
            ("worker", "fate"),
        )
        self.uncompared_requests = self._counter(
            "uncompared_requests",
            "Requests whose predicted hits could not be compared with delivered ones",
            ("worker", "reason"),
        )

    def _troubles(self) -> None:
        self.not_rendered = self._counter(
            "not_rendered", "Requests routed without token ids", ("reason",)
        )
        self.forwarded = self._counter(
            "forwarded",
            "Requests sent to a worker, by whether token ids went along: forwarded, "
            "withheld (why), or resent without after they were refused",
            ("outcome", "reason"),
        )
        self.retries = self._counter(
            "retries", "Requests sent a second time", ("reason",)
        )
        self.upstream_failures = self._counter(
            "upstream_failures", "Exchanges a worker did not finish", ("worker", "kind")
        )
        self.refused = self._counter(
            "refused", "Requests refused as there were too many", ("reason",)
        )
        self.client_requests = self._counter(
            "client_requests",
            "Requests by the name of the client's key: taken, or over its rate or its "
            "requests in flight",
            ("client", "outcome"),
        )
        self.refused_keys = self._counter(
            "refused_keys", "Requests without a key, or with a wrong one", ("reason",)
        )
        self.attempts = self._counter(
            "attempts",
            "Requests sent to a worker, by what came of it: answered, busy, or why not",
            ("worker", "outcome"),
        )
        self.health_checks = self._counter(
            "health_checks", "Health checks of workers", ("worker", "result")
        )
        self.client_disconnects = self._count(
            "client_disconnects", "Clients that left before their answer ended"
        )
        self.client_ranks_dropped = self._count(
            "client_ranks_dropped", "Data-parallel rank headers of clients, dropped"
        )

    def forget(self, url: str) -> None:
        """A worker is gone: its series are dropped."""
        for metric in vars(self).values():
            if isinstance(metric, Labelled):
                metric.forget(url)


class Labelled(Generic[M]):
    """A metric with labels that looks up each series once: it is done all the time."""

    def __init__(self, metric: M) -> None:
        self._metric: M = metric
        self._by_worker = metric._labelnames[:1] == ("worker",)
        self._series: dict[tuple[str, ...], M] = {}

    def labels(self, *values: str) -> M:
        """The series of these label values."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = self._metric.labels(*values)
        return series

    def read(self) -> Iterator[Metric]:
        """The metric, in several parts where it has many series."""
        metric, series = self._metric, tuple(self._series.items())
        for start in range(0, max(1, len(series)), SERIES):
            part = Metric(metric._name, metric._documentation, metric._type)
            for values, one in series[start : start + SERIES]:
                labels = dict(zip(metric._labelnames, values, strict=True))
                for sample in next(iter(one.collect())).samples:
                    labelled = labels | sample.labels
                    part.add_sample(sample.name, labelled, sample.value)
            yield part

    def forget(self, worker: str) -> None:
        """Drop the series of a worker, where there is one for each."""
        if self._by_worker:
            for values in [values for values in self._series if values[0] == worker]:
                del self._series[values]
                self._metric.remove(*values)


def _text(metric: Metric, start: int, end: int) -> bytes:
    """Some samples of a metric, behind its head."""
    part = Metric(metric.name, metric.documentation, metric.type)
    part.samples = metric.samples[start:end]
    return generate_latest(_One(part))


class _One(CollectorRegistry):
    """A registry of one metric that was read already."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


class _Reader(Collector):
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()

    def describe(self) -> Iterable[Metric]:
        return ()
