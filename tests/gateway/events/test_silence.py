"""Feeds that say nothing: one line with the likely cause, seldom repeated."""

import logging
from functools import partial
from typing import Any

import pytest

from gateway.events.silence import Silence, expect, flags
from gateway.settings.values import EventEndpoint
from gateway.workers.engines import trtllm, vllm
from kvindex.events import EventBatch
from kvindex.feed import FeedSettings
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.standing import FeedState
from kvindex.wire.vllm import encode_batch
from router.pool import WorkerPool
from router.worker import Worker, WorkerSpec
from tests.gateway.fed import TURN, options, states
from tests.running import SIM, StartGateway, StartWorker, free_port, until

BATCH = encode_batch(EventBatch(timestamp=0.0, events=(), rank=0))


class Fleet:
    """Workers with a feed each, and a clock in the test's hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pool = WorkerPool(clock=lambda: self.now, prefill_rate=1.0)
        self.silence = Silence(self.pool, lambda: self.now)

    def worker(self, url: str, *, has_source: bool) -> Worker:
        """One more."""
        worker = self.pool.add(WorkerSpec(url=url))
        worker.engine = "vllm"
        worker.knowledge[0] = Knowledge.open(
            model="m",
            indexes=Indexes(limit_bytes=1 << 24),
            key=f"{url} rank 0",
            clock=lambda: self.now,
            capacity_blocks=100,
            has_source=has_source,
        )
        return worker

    def pass_time(self, seconds: int) -> None:
        """Second by second, as the gateway lives it."""
        for _ in range(seconds):
            self.now += 1.0
            for worker in self.pool.workers:
                worker.knowledge[0].feed.tick()
            self.silence.check()


def lines(caplog: pytest.LogCaptureFixture, url: str) -> list[str]:
    """Warnings that name a worker."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and url in record.getMessage()
    ]


def test_no_events_though_requests_stored_blocks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line after ten seconds, one more each minute, none after an event."""
    fleet = Fleet()
    feed = fleet.worker("http://w1:1", has_source=True).knowledge[0].feed
    expect(feed, "nothing publishes at tcp://w1:5557")
    feed.request_ended(stores_new_block=True)
    fleet.pass_time(11)
    (line,) = lines(caplog, "http://w1:1")
    assert "silent" in line
    assert "nothing publishes at tcp://w1:5557" in line
    fleet.pass_time(58)
    assert len(lines(caplog, "http://w1:1")) == 1
    fleet.pass_time(60)
    said = lines(caplog, "http://w1:1")
    assert len(said) == 2
    assert "still no events" in said[1]
    assert "nothing publishes at tcp://w1:5557" in said[1]
    feed.receive(0, BATCH)
    assert feed.state is FeedState.LIVE
    fleet.pass_time(120)
    assert len(lines(caplog, "http://w1:1")) == 2


def test_a_worker_without_source_among_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is named while others have events, with the flag that it lacks."""
    fleet = Fleet()
    fleet.worker("http://w1:1", has_source=False)
    feed = fleet.worker("http://w2:1", has_source=True).knowledge[0].feed
    fleet.pass_time(60)
    assert lines(caplog, "http://") == []  # events may be off on purpose
    feed.receive(0, BATCH)
    fleet.pass_time(1)
    (line,) = lines(caplog, "http://w1:1")
    assert "--kv-events-config" in line
    fleet.pass_time(300)
    assert len(lines(caplog, "http://w1:1")) == 6  # each minute
    assert lines(caplog, "http://w2:1") == []


def test_a_worker_that_can_send_none(caplog: pytest.LogCaptureFixture) -> None:
    """Once is enough, where no flag would mend it."""
    fleet = Fleet()
    fleet.worker("http://w1:1", has_source=False).engine = "generic"
    fleet.worker("http://w2:1", has_source=True).knowledge[0].feed.receive(0, BATCH)
    fleet.pass_time(300)
    assert len(lines(caplog, "http://w1:1")) == 1


def test_a_worker_that_wants_a_key(caplog: pytest.LogCaptureFixture) -> None:
    """Why no source is known is the likely cause, not the flags of its engine."""
    fleet = Fleet()
    shut = fleet.worker("http://w1:1", has_source=False).knowledge[0].feed
    shut.unsourced("/server_info answers 401: it wants a key, see --worker-api-key")
    fleet.worker("http://w2:1", has_source=True).knowledge[0].feed.receive(0, BATCH)
    fleet.pass_time(20)
    (line,) = lines(caplog, "http://w1:1")
    assert "--worker-api-key" in line
    assert "--kv-events-config" not in line


def test_what_to_look_at() -> None:
    """Each engine's own flags; of an unknown one there is little to say."""
    worker: Any = type("W", (), {"engine": "trtllm"})
    assert flags(worker) == trtllm.NO_EVENTS
    assert "event_buffer_max_size" in trtllm.NO_EVENTS
    worker.engine = "vllm"
    assert flags(worker) == vllm.NO_EVENTS
    worker.engine = None
    assert "--kv-events" in flags(worker)


@pytest.mark.parametrize("case", ["nobody", "mute", "fetched"])
async def test_the_likely_cause(
    case: str,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nobody at the endpoint; a publisher that says nothing; a buffer of no events."""
    soon = partial(FeedSettings, silent_after_s=0.1)
    monkeypatch.setattr("gateway.events.ingest.FeedSettings", soon)
    if case == "fetched":
        worker = await start_worker(options("trtllm", kv_events=False))
        gateway = await start_gateway(worker)
        cause = "event_buffer_max_size"
    elif case == "mute":
        worker = await start_worker(options(faults='{"mute": true}'))
        gateway = await start_gateway(worker)
        cause = "sends no batches"
    else:
        worker = await start_worker(SIM)
        endpoint = f"tcp://127.0.0.1:{free_port()}"
        source = EventEndpoint(worker.url, 0, endpoint)
        gateway = await start_gateway(worker, kv_events=(source,))
        cause = f"nothing publishes at {endpoint}"
    await gateway.chat(TURN)
    await until(lambda: states(gateway, worker) == ["silent"])
    assert cause in (await gateway.feed())["reason"]
    (line,) = [line for line in lines(caplog, worker.url) if "silent" in line]
    assert cause in line
    answer = await gateway.chat(TURN)  # by history
    assert await gateway.hits() == (answer.cached, answer.cached)
    assert answer.cached > 0
