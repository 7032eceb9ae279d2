"""Metrics that are read at each scrape."""

import time
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from gateway.metrics.gauges import Gauges
from kvindex.blocks import pack_ids
from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.standing import FeedState
from kvindex.wire.vllm import encode_batch
from router.forwarding import Forwarding, Proof
from router.pool import WorkerPool
from router.worker import WorkerSpec, WorkerState

URL = "http://w1:8000"


def stored(number: int) -> BlockStored:
    """Two blocks of 16 tokens."""
    ids = pack_ids(range(32 * number, 32 * number + 32))
    hashes = (2 * number, 2 * number + 1)
    return BlockStored(hashes=hashes, parent=None, token_ids=ids, block_size=16)


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    """The value of the sample with just these labels."""
    (sample,) = [
        sample
        for sample in metrics[f"kv_gateway_{name}"].samples
        if all(sample.labels[key] == wanted for key, wanted in labels.items())
    ]
    return sample.value


def _read(pool: WorkerPool, indexes: Indexes) -> Iterator[Metric]:
    return Gauges(pool, indexes, Forwarding(pool)).read()


def test_a_fleet_of_one() -> None:
    """Load, states, events by kind, troubles, and the index, as they are now."""
    pool = WorkerPool(clock=time.monotonic)
    indexes = Indexes(limit_bytes=1 << 20)
    worker = pool.add(WorkerSpec(url=URL))
    known = Knowledge.open(
        model="m",
        indexes=indexes,
        key="w",
        clock=time.monotonic,
        capacity_blocks=10,
        block_size=16,
    )
    worker.knowledge[0] = known
    worker.ledger(0).book(500, 10, prefill_s=None)
    events = (
        stored(1),
        stored(2),
        BlockRemoved(hashes=(2,)),
        AllBlocksCleared(),
        stored(3),
    )
    batch = EventBatch(timestamp=0.0, events=events, rank=0)
    known.feed.receive(0, encode_batch(batch))
    known.feed.receive(3, b"\xc1")

    metrics = {metric.name: metric for metric in _read(pool, indexes)}
    assert value(metrics, "inflight_requests", worker=URL) == 1
    assert value(metrics, "inflight_uncached_tokens", worker=URL) == 500
    for state in WorkerState:
        wanted = state is WorkerState.joining
        assert value(metrics, "worker_state", worker=URL, state=state) == wanted
    for feed_state in FeedState:
        wanted = feed_state is FeedState.DEGRADED
        owner = {"worker": URL, "rank": "0"}
        assert value(metrics, "feed_state", **owner, state=feed_state) == wanted
    # Events are counted, not their blocks.
    assert value(metrics, "kv_events", kind="stored") == 3
    assert value(metrics, "kv_events", kind="removed") == 1
    assert value(metrics, "kv_events", kind="cleared") == 1
    assert value(metrics, "undecodable_events", reason="batch") == 1
    assert value(metrics, "event_gaps") == 1
    assert value(metrics, "worker_restarts") == 0
    assert value(metrics, "index_blocks") == 2
    assert 0 < value(metrics, "index_bytes") <= value(metrics, "index_limit_bytes")
    assert value(metrics, "index_refused_blocks") == 0


def test_who_blocks_forwarding() -> None:
    """A ready worker that is not proven, with its reason; no other."""
    pool, indexes = WorkerPool(clock=time.monotonic), Indexes(limit_bytes=1 << 20)
    blocking, proven = (pool.add(WorkerSpec(url=f"http://w{n}:8000")) for n in (1, 2))
    pool.add(WorkerSpec(url="http://joining:8000"))
    for worker in (blocking, proven):
        pool.answered(worker)
    proven.proof = Proof(by="digest")
    metrics = {metric.name: metric for metric in _read(pool, indexes)}
    (sample,) = metrics["kv_gateway_forwarding_blocked"].samples
    assert sample.labels == {"worker": blocking.url, "reason": "pending"}
    assert sample.value == 1
