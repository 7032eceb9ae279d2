"""Metrics of feeds, and the same on the admin pages: state, reason, since when."""

import logging
import time
from collections.abc import Iterator

import msgspec
import pytest
from prometheus_client.metrics_core import Metric

from gateway.admin import knowledge_pages
from gateway.metrics.feed_metrics import COUNTS, LONGEST_REASON, feed_metrics
from kvindex.blocks import pack_ids
from kvindex.events import AllBlocksCleared, BlockStored, EventBatch, KVEvent
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.standing import FeedState
from kvindex.wire.vllm import encode_batch
from router.pool import WorkerPool
from router.worker import WorkerSpec
from tests.router.fleet import Clock

URL = "http://w1:8000"
OWNER = {"worker": URL, "rank": "0"}
EPOCH = 1_000_000.0


class Feeding:
    """One worker with one feed, and its metrics."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.pool = WorkerPool(clock=self.clock)
        self.known = Knowledge.open(
            model="m",
            indexes=Indexes(limit_bytes=1 << 24),
            key="w1 rank 0",
            clock=self.clock,
            capacity_blocks=64,
            block_size=16,
        )
        self.pool.add(WorkerSpec(url=URL)).knowledge[0] = self.known
        self.known.feed.connected()

    def send(self, sequence: int, *events: KVEvent) -> None:
        """One batch."""
        batch = EventBatch(timestamp=0.0, events=events, rank=0)
        self.known.feed.receive(sequence, encode_batch(batch))

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Of one metric: its labels beyond the owner's, to its value."""
        (metric,) = [m for m in self._read() if m.name == f"kv_gateway_{name}"]
        found = {}
        for sample in metric.samples:
            assert sample.labels.items() >= OWNER.items()
            own = sample.labels.keys() - OWNER.keys()
            found[tuple(sample.labels[key] for key in own)] = sample.value
        return found

    def _read(self) -> Iterator[Metric]:
        return feed_metrics(self.pool, EPOCH)


@pytest.fixture
def feeding() -> Feeding:
    """A feed that is connected and has heard nothing."""
    return Feeding()


def stored(number: int, *, medium: str = "GPU") -> BlockStored:
    """One block of 16 tokens."""
    ids = pack_ids(range(16 * number, 16 * number + 16))
    return BlockStored(
        hashes=(number,), parent=None, token_ids=ids, block_size=16, medium=medium
    )


def test_the_state_its_reason_and_since_when(feeding: Feeding) -> None:
    """One state is 1; the reason is there while there is one; a time, not an age."""
    feeding.send(0, stored(1))
    assert feeding.samples("feed_reason") == {}
    assert feeding.samples("feed_complete") == {(): 1}
    feeding.clock += 50.0
    feeding.send(3, stored(2))
    states = feeding.samples("feed_state")
    assert {s for (s,), value in states.items() if value} == {FeedState.DEGRADED}
    assert set(states) == {(state,) for state in FeedState}
    assert feeding.samples("feed_reason") == {("missed batches",): 1}
    since = EPOCH + feeding.clock.now
    assert feeding.samples("feed_state_timestamp_seconds") == {(): since}
    assert feeding.samples("feed_complete") == {(): 0}
    feeding.clock += 50.0
    assert feeding.samples("feed_state_timestamp_seconds") == {(): since}


def test_a_long_reason_is_cut(feeding: Feeding) -> None:
    """A label is no place for a story."""
    feeding.send(0, stored(1))
    feeding.known.feed.disconnected("x" * 1_000)
    ((reason,),) = feeding.samples("feed_reason")
    assert len(reason) == LONGEST_REASON


def test_what_is_held_and_what_is_in_doubt(feeding: Feeding) -> None:
    """By medium; doubt comes with missed batches and goes with a cleared cache."""
    feeding.send(0, stored(1), stored(2), stored(3, medium="CPU"))
    assert feeding.samples("held_blocks") == {("gpu",): 2, ("other",): 1}
    assert feeding.samples("suspect_blocks") == {(): 0}
    feeding.send(5, stored(4))
    assert feeding.samples("suspect_blocks") == {(): 3}
    feeding.send(6, AllBlocksCleared())
    assert feeding.samples("suspect_blocks") == {(): 0}
    assert feeding.samples("held_blocks") == {("gpu",): 0, ("other",): 0}


def test_troubles_are_counted(feeding: Feeding) -> None:
    """Gaps and what they lost, duplicates, restarts, orphans."""
    orphan = msgspec.structs.replace(stored(9), parent=77)
    feeding.send(0, stored(1))
    feeding.send(0, stored(1))
    feeding.send(4, orphan)
    feeding.send(0, stored(5))
    counts = {name: feeding.samples(name)[()] for name in COUNTS}
    assert counts == {
        "event_gaps": 1,
        "missed_batches": 3,
        "replayed_batches": 0,
        "duplicate_batches": 1,
        "disordered_batches": 0,
        "worker_restarts": 1,
        "orphan_blocks": 1,
        "orphan_blocks_dropped": 0,
    }


def test_events_by_kind_and_those_of_no_use(feeding: Feeding) -> None:
    """What was decoded, what was not, and what could not be used."""
    odd = msgspec.structs.replace(stored(3), token_ids=pack_ids(range(40)))
    feeding.send(0, stored(1), odd, AllBlocksCleared())
    feeding.known.feed.receive(1, b"\xc1")
    events = feeding.samples("kv_events")
    assert (events["stored",], events["cleared",], events["removed",]) == (2, 1, 0)
    assert feeding.samples("undecodable_events") == {("batch",): 1}
    assert sum(feeding.samples("rejected_events").values()) == 1


def test_pages_tell_the_same(feeding: Feeding) -> None:
    """State, reason, since when as a duration and as a time to be read."""
    feeding.send(0, stored(1), stored(2, medium="CPU"))
    feeding.clock += 100.0
    feeding.send(9, stored(3))
    feeding.clock += 90.0
    page = knowledge_pages.feed(
        0, feeding.known, source="tcp://w1:5557", now=feeding.clock.now, wall=90.0
    )
    assert page == {
        "rank": 0,
        "source": "tcp://w1:5557",
        "state": "degraded",
        "reason": "missed batches",
        "state_s": 90.0,
        "since": "1970-01-01T00:00:00Z",
        "complete": False,
        "last_sequence": 9,
        "block_size": 16,
        "blocks": 3,
        "suspect_blocks": 2,
        "history_blocks": 0,
    }
    owner = knowledge_pages.owner(URL, 0, feeding.known)
    assert (owner["blocks"], owner["gpu_blocks"]) == (3, 2)
    assert (owner["suspect_blocks"], owner["waiting_orphans"]) == (2, 0)
    assert (owner["gaps"], owner["missed_batches"], owner["rejected"]) == (1, 8, {})


def test_each_change_of_state_is_one_line(
    feeding: Feeding, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason; bad ones are warnings, and nothing is said twice."""
    caplog.set_level(logging.INFO)
    feeding.send(0, stored(1))
    for sequence in (1, 2, 3):
        feeding.send(sequence, stored(sequence + 1))
    assert caplog.records == []
    feeding.send(7, stored(8))
    feeding.send(9, stored(9))
    lines = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert lines == [("WARNING", "KV events of w1 rank 0: degraded (missed batches)")]
    caplog.clear()
    feeding.send(10, AllBlocksCleared())
    lines = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert lines == [("INFO", "KV events of w1 rank 0: live (all events seen)")]


def test_times_are_utc() -> None:
    """To the second."""
    assert knowledge_pages.moment(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert time.gmtime(1_700_000_000)[:6] == (2023, 11, 14, 22, 13, 20)
