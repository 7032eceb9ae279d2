"""Which owners a worker has, and what becomes of them when it changes."""

import time

import msgspec
import pytest

from gateway.events.owners import SEEN_RANKS, Owners
from gateway.workers.contact import WorkerFacts
from gateway.workers.engines.facts import EventSource
from gateway.workers.engines.trtllm import EventDecoder
from kvindex.feed import Feed, FeedSettings
from kvindex.index import Indexes
from router.models import ListedModel
from router.pool import WorkerPool
from router.worker import Worker, WorkerSpec

FACTS = WorkerFacts(
    models=(ListedModel(id="m", root=None, parent=None),),
    listing=({"id": "m"},),
    engine="vllm",
    sources={0: EventSource(endpoint="tcp://w1:1")},
)


@pytest.fixture
def worker() -> Worker:
    """A worker that listed its model."""
    pool = WorkerPool(clock=time.monotonic, prefill_rate=1.0)
    worker = pool.add(WorkerSpec(url="http://w1:8000"))
    pool.listed(worker, FACTS.models)
    return worker


@pytest.fixture
def owners() -> Owners:
    """Owners in an index of their own."""
    return Owners(Indexes(limit_bytes=1 << 24), FeedSettings())


def changed(**told: object) -> WorkerFacts:
    """The same worker, which says something else now."""
    return msgspec.structs.replace(FACTS, **told)


def test_nothing_changes_where_the_same_is_told(owners: Owners, worker: Worker) -> None:
    """A look at a worker leaves its feeds as they are."""
    decoder = {"engine": "trtllm", "sources": {}}
    for facts in (FACTS, changed(drained=EventDecoder("v1_block_key"), **decoder)):
        owners.learn(worker, facts)
        feed = worker.knowledge[0].feed
        again = changed(drained=EventDecoder("v1_block_key"), **decoder)
        owners.learn(worker, FACTS if facts is FACTS else again)
        assert worker.knowledge[0].feed is feed


@pytest.mark.parametrize(
    "facts",
    [
        changed(sources={}),
        changed(engine="sglang"),
        changed(engine="trtllm", drained=EventDecoder()),
    ],
)
def test_another_engine_or_source(
    owners: Owners, worker: Worker, facts: WorkerFacts
) -> None:
    """What was known of the old one is forgotten."""
    owners.learn(worker, FACTS)
    feed = worker.knowledge[0].feed
    owners.learn(worker, facts)
    assert worker.knowledge[0].feed is not feed


def test_a_new_start_is_told_once(owners: Owners, worker: Worker) -> None:
    """Whatever a start is; a feed that noticed the restart itself is not told."""
    for start in (1.5, 1.5, "second", "second"):
        owners.learn(worker, changed(started_at=start))
    counters = worker.knowledge[0].feed.counters
    assert counters.restarts == 1
    worker.knowledge[0].feed.restarted("noticed")
    worker.knowledge[0].feed.work(10)
    owners.learn(worker, changed(started_at="third"))
    assert counters.restarts == 2
    owners.learn(worker, changed(started_at=None))
    owners.learn(worker, changed(started_at="third"))
    assert counters.restarts == 2


def test_ranks_that_events_name(owners: Owners, worker: Worker) -> None:
    """They are opened; before the worker was asked, and beyond all bounds, not.

    No request is sent to one by its number: nobody told that it is one.
    """
    assert owners.feed(worker, 1) is None
    owners.listen(worker)
    owners.learn(worker, FACTS)
    assert (owners.sources(worker).listened, list(worker.knowledge)) == (True, [0])
    feed = owners.feed(worker, 3)
    assert feed is worker.knowledge[3].feed
    assert owners.feed(worker, 3) is feed
    assert [owners.feed(worker, rank) for rank in (-1, 1024, 1 << 70)] == [None] * 3
    assert owners.feed(worker, 0) is worker.knowledge[0].feed
    assert (list(worker.ranks), worker.pinned) == ([0, 3], False)


def test_ranks_that_a_worker_does_not_have(
    owners: Owners, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """It told its ranks: no event makes more of them. One line, and a count."""
    owners.listen(worker)
    owners.learn(worker, changed(ranks=(0, 1)))
    assert (list(worker.ranks), worker.pinned) == ([0, 1], True)
    for rank in (5, -1, 1 << 70, 5):
        assert owners.feed(worker, rank) is None
    assert (list(worker.knowledge), worker.pinned) == ([0, 1], True)
    assert worker.knowledge[0].feed.counters.rejected == {"rank": 4}
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "of rank 5" in line]) == 1
    assert not [line for line in lines if "rank -1" in line]
    assert owners.feed(worker, 1) is worker.knowledge[1].feed


def test_ranks_that_events_named_before_the_worker_told(
    owners: Owners, worker: Worker
) -> None:
    """Those that it does not have are gone, and what they were taken to hold."""
    owners.listen(worker)
    owners.learn(worker, FACTS)
    assert owners.feed(worker, 5) is not None
    owners.learn(worker, changed(ranks=(0,)))
    assert (list(worker.ranks), list(worker.knowledge)) == ([0], [0])
    assert owners.feed(worker, 5) is None


def test_more_ranks_than_events_may_name(
    owners: Owners, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """One publisher does not make any number of them; one line says so."""
    owners.listen(worker)
    owners.learn(worker, FACTS)
    for rank in range(SEEN_RANKS + 10):
        assert (owners.feed(worker, rank) is not None) == (rank < SEEN_RANKS)
    assert len(worker.knowledge) == len(worker.ranks) == SEEN_RANKS
    assert worker.knowledge[0].feed.counters.rejected == {"rank": 10}
    (line,) = [r.getMessage() for r in caplog.records if "of rank" in r.getMessage()]
    assert f"beyond the {SEEN_RANKS} that events named" in line
    owners.learn(worker, changed(ranks=tuple(range(1024))))
    assert owners.feed(worker, 1023) is worker.knowledge[1023].feed


def test_a_further_rank_leaves_the_others(
    owners: Owners, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked at once, however many follow."""
    owners.listen(worker)
    owners.learn(worker, FACTS)
    looked = []
    monkeypatch.setattr(Feed, "unsourced", lambda feed, why: looked.append(feed))
    for rank in range(1, 50):
        owners.feed(worker, rank)
    assert len(looked) == len(set(looked)) == 49


@pytest.mark.parametrize(
    ("told", "pinned"), [((), True), ((0, 5), True), ((0,), False), ((0, 1), False)]
)
def test_declared_ranks(told: tuple[int, ...], pinned: bool) -> None:
    """Requests are sent to them unless the worker tells that it has others."""
    owners = Owners(Indexes(limit_bytes=1 << 24), FeedSettings())
    pool = WorkerPool(clock=time.monotonic, prefill_rate=1.0)
    events = {0: "tcp://w1:1", 5: "tcp://w1:6"}
    worker = pool.add(WorkerSpec(url="http://w1:8000", kv_events=events))
    owners.learn(worker, changed(ranks=told, sources={}))
    assert (list(worker.ranks), worker.pinned) == ([0, 5], pinned)


def test_feeds_with_a_source_are_worked_off_in_slices(
    owners: Owners, worker: Worker
) -> None:
    """So that a large batch never holds up requests."""
    owners.learn(worker, FACTS)
    assert worker.knowledge[0].feed.sliced
