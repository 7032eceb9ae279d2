"""Metrics of the feeds of KV events, and of what each owner holds by them.

Read at each scrape; nothing is written here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.metrics.registry import PREFIX
from kvindex.counters import Counters
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
)
from kvindex.feed import Feed
from kvindex.standing import FeedState
from router.pool import WorkerPool

OWNER = ("worker", "rank")
KINDS = {
    "stored": BlockStored.__name__,
    "removed": BlockRemoved.__name__,
    "cleared": AllBlocksCleared.__name__,
    "updated": BlockUpdated.__name__,
    "created": CacheCreated.__name__,
}
LONGEST_REASON = 120

COUNTS: Mapping[str, tuple[str, Callable[[Counters], int]]] = {
    "event_gaps": ("Times batches of KV events were missed", lambda c: c.gaps),
    "missed_batches": ("Batches of KV events missed", lambda c: c.missed_batches),
    "replayed_batches": ("Missed batches that a replay brought", lambda c: c.replayed),
    "duplicate_batches": ("Batches that came again, ignored", lambda c: c.duplicates),
    "disordered_batches": ("Batches out of their order", lambda c: c.out_of_order),
    "worker_restarts": (
        "Restarts of a worker seen by its events",
        lambda c: c.restarts,
    ),
    "orphan_blocks": (
        "Blocks stored before their parent was known",
        lambda c: c.orphans,
    ),
    "orphan_blocks_dropped": (
        "Of those, given up without a parent",
        lambda c: c.orphans_dropped,
    ),
}
"""Counters of a feed: name, meaning, and where it is found."""

Feeds = Sequence[tuple[list[str], Feed]]
"""The labels of an owner, and its feed."""


def feed_metrics(pool: WorkerPool, epoch: float) -> Iterator[Metric]:
    """Every metric of every feed; `epoch` is when the feeds' clock was 0.

    In seconds since 1970.
    """
    feeds = [
        ([worker.url, str(rank)], known.feed)
        for worker in pool.workers
        for rank, known in worker.knowledge.items()
    ]
    yield from _standing(feeds, epoch)
    yield from _held(feeds)
    yield from _events(feeds)
    for name, (text, count) in COUNTS.items():
        family = CounterMetricFamily(PREFIX + name, text, labels=OWNER)
        for owner, feed in feeds:
            family.add_metric(owner, count(feed.counters))
        yield family


def _standing(feeds: Feeds, epoch: float) -> Iterator[Metric]:
    states = _gauge("feed_state", "1 for the state a feed of KV events is in", "state")
    reasons = _gauge("feed_reason", "1 for why a feed is in its state", "reason")
    since = _gauge(
        "feed_state_timestamp_seconds", "When a feed came to its state, since 1970"
    )
    complete = _gauge(
        "feed_complete", "1 where the index has all that the worker holds"
    )
    for owner, feed in feeds:
        for state in FeedState:
            states.add_metric([*owner, state], feed.state is state)
        if feed.reason:
            reasons.add_metric([*owner, feed.reason[:LONGEST_REASON]], 1)
        since.add_metric(owner, epoch + feed.since)
        complete.add_metric(owner, feed.complete)
    yield from (states, reasons, since, complete)


def _held(feeds: Feeds) -> Iterator[Metric]:
    blocks = _gauge("held_blocks", "Blocks that an owner holds", "medium")
    suspects = _gauge("suspect_blocks", "Of those, in doubt since events were missed")
    for labels, feed in feeds:
        if (owner := feed.owner) is not None:
            blocks.add_metric([*labels, "gpu"], owner.gpu_blocks)
            blocks.add_metric([*labels, "other"], owner.blocks - owner.gpu_blocks)
            suspects.add_metric(labels, owner.suspect_blocks)
    yield from (blocks, suspects)


def _events(feeds: Feeds) -> Iterator[Metric]:
    events = _counter("kv_events", "KV events decoded", "kind")
    undecodable = _counter(
        "undecodable_events", "KV events that could not be decoded", "reason"
    )
    rejected = _counter(
        "rejected_events", "KV events that could be decoded but not used", "reason"
    )
    for owner, feed in feeds:
        counters = feed.counters
        for kind, name in KINDS.items():
            events.add_metric([*owner, kind], counters.events.get(name, 0))
        for reason, count in counters.undecodable.items():
            undecodable.add_metric([*owner, reason], count)
        for reason, count in counters.rejected.items():
            rejected.add_metric([*owner, reason], count)
    yield from (events, undecodable, rejected)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=(*OWNER, *labels))


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=(*OWNER, *labels))
