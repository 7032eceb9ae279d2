"""Metrics read at each scrape: workers, feeds, index. Nothing is written here."""

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.metrics.feed_metrics import feed_metrics
from gateway.metrics.load_metrics import load_metrics
from gateway.metrics.registry import PREFIX
from kvindex.index import Indexes
from router.forwarding import Forwarding
from router.pool import WorkerPool
from router.worker import WorkerState


class Gauges:
    """Reads the state of a fleet and an index."""

    def __init__(
        self,
        pool: WorkerPool,
        indexes: Indexes,
        forwarding: Forwarding,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is that of the feeds."""
        self._epoch = time.time() - clock()
        self._forwarding = forwarding
        self._pool = pool
        self._indexes = indexes

    def read(self) -> Iterator[Metric]:
        """Every metric, with the values of now."""
        yield from self._workers()
        yield from load_metrics(self._pool)
        yield from feed_metrics(self._pool, self._epoch)
        yield self._blockers()
        indexes = self._indexes.all
        memory = self._indexes.memory
        yield _gauge("index_blocks", "Blocks indexed", sum(i.blocks for i in indexes))
        yield _gauge("index_bytes", "Memory of the index, estimated", memory.used_bytes)
        yield _gauge("index_limit_bytes", "Bound of the index", memory.limit_bytes)
        refused = sum(index.refused for index in indexes)
        yield _counter("index_refused_blocks", "Blocks refused at the bound", refused)

    def _workers(self) -> Iterator[Metric]:
        requests = GaugeMetricFamily(
            PREFIX + "inflight_requests", "Requests in flight", labels=("worker",)
        )
        tokens = GaugeMetricFamily(
            PREFIX + "inflight_uncached_tokens",
            "Uncached prompt tokens in flight, until their first token",
            labels=("worker",),
        )
        rates = GaugeMetricFamily(
            PREFIX + "prefill_tokens_per_second",
            "Prompt tokens a worker prefills per second, learnt or given",
            labels=("worker",),
        )
        states = GaugeMetricFamily(
            PREFIX + "worker_state",
            "1 for the state a worker is in",
            labels=("worker", "state"),
        )
        returns = CounterMetricFamily(
            PREFIX + "worker_returns",
            "How often a worker was used again after it had failed",
            labels=("worker",),
        )
        for worker in self._pool.workers:
            returns.add_metric([worker.url], worker.returns)
            requests.add_metric([worker.url], worker.inflight_requests)
            tokens.add_metric([worker.url], worker.inflight_tokens)
            rates.add_metric([worker.url], worker.rate.tokens_per_s)
            for state in WorkerState:
                states.add_metric([worker.url, state], worker.state is state)
        yield from (requests, tokens, rates, states, returns)

    def _blockers(self) -> Metric:
        blocked = GaugeMetricFamily(
            PREFIX + "forwarding_blocked",
            "1 for a ready or suspect worker that is sent no token ids, and why",
            labels=("worker", "reason"),
        )
        for url, blocker in self._forwarding.blockers().items():
            blocked.add_metric([url, blocker.reason], 1)
        return blocked


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)
