"""Workers that come late, restart, move, or break their event stream."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import zmq

from gateway import monitor
from gateway.values import EventEndpoint
from kvindex.blocks import pack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch, KVEvent
from kvindex.wire.vllm import encode_batch, encode_frames
from router.worker import WorkerState
from simworker.server import SimWorker
from tests.running import (
    MODEL,
    SIM,
    WITH_EVENTS,
    Running,
    StartGateway,
    StartWorker,
    until,
)

TEXT = "Which harbour is the oldest that is still in use, and who says so? " * 12
TURN = [{"role": "user", "content": TEXT}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at workers often enough for a test."""
    monkeypatch.setattr(monitor, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(monitor, "RETRY_LIMIT_S", 0.2)
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)


def port_of(worker: SimWorker) -> int:
    """The port of a worker's HTTP server."""
    return int(worker.url.rpartition(":")[2])


def held(gateway: Running, worker: SimWorker) -> int:
    """The blocks that the index has for a worker."""
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    owner = known.knowledge[0].feed.owner
    return owner.blocks if owner else 0


async def test_a_worker_may_start_after_the_gateway(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """It is found, followed and used once it is there."""
    worker = await start_worker(WITH_EVENTS)
    options = msgspec.structs.replace(WITH_EVENTS, port=port_of(worker))
    await worker.stop()
    gateway = await start_gateway(worker.url)
    await gateway.get("/ready", 503)
    late = await start_worker(options)
    await until(lambda: gateway.gateway.admin.ready())
    await asyncio.sleep(0.3)  # the event socket
    await gateway.chat(TURN)
    await gateway.until_events_arrive(late)
    answer = await gateway.chat(TURN)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered == answer.cached > 0


@pytest.mark.parametrize("same_event_port", [True, False])
async def test_a_restarted_worker_has_an_empty_cache(
    start_worker: StartWorker, start_gateway: StartGateway, same_event_port: bool
) -> None:
    """Nothing of the old cache is predicted; the new feed is followed where it is."""
    old = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(old)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(old)
    assert held(gateway, old) > 0
    assert old.kv_endpoint is not None
    event_port = int(old.kv_endpoint.rpartition(":")[2]) if same_event_port else 0
    await old.stop()
    await until(lambda: _feed_states(gateway) == ["degraded"])
    new = await start_worker(
        msgspec.structs.replace(
            WITH_EVENTS, port=port_of(old), kv_events_port=event_port
        )
    )
    await until(lambda: _restarts(gateway) == 1)
    assert held(gateway, new) == 0
    await asyncio.sleep(0.3)  # the new event socket
    explained = await gateway.post(
        "/gateway/explain", {"model": MODEL, "messages": TURN}
    )
    assert explained["workers"][0]["held_tokens"] == 0
    assert explained["workers"][0]["history_tokens"] == 0
    assert (await gateway.chat(TURN)).cached == 0
    await gateway.until_events_arrive(new)
    assert (await gateway.chat(TURN)).cached > 0
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0
    assert _feed_states(gateway) == ["live"]
    await asyncio.sleep(0.5)  # several looks: the restart is noticed once
    assert await gateway.metric("worker_restarts_total") == 1


async def test_a_restart_after_the_first_look(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One look is enough to know another process by its start, before any event."""
    monkeypatch.setattr(monitor, "REFRESH_S", 60.0)
    old = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(old)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(old)
    await old.stop()
    await until(lambda: _feed_states(gateway) == ["degraded"])
    new = await start_worker(
        msgspec.structs.replace(WITH_EVENTS, port=port_of(old), kv_events_port=0)
    )
    await until(lambda: _restarts(gateway) == 1)
    assert held(gateway, new) == 0
    assert _feed_states(gateway) == ["live"]


def _feed_states(gateway: Running) -> list[str]:
    workers = gateway.gateway.pool.workers
    return [known.feed.state for w in workers for known in w.knowledge.values()]


def _restarts(gateway: Running) -> int:
    (worker,) = gateway.gateway.pool.workers
    return worker.knowledge[0].feed.counters.restarts


async def test_another_model_at_the_same_address(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Blocks of the new model are indexed under its name."""
    old = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(old)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(old)
    await old.stop()
    new = await start_worker(
        msgspec.structs.replace(
            WITH_EVENTS, port=port_of(old), served_model_name=("newer",)
        )
    )
    (worker,) = gateway.gateway.pool.workers
    await until(lambda: worker.models == {"newer"})
    await asyncio.sleep(0.3)  # the new event socket
    for _ in range(2):
        await gateway.chat(TURN, model="newer")
        await gateway.until_events_arrive(new)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0


async def test_a_worker_that_now_sends_events(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """From estimated to live when the worker comes back with events on."""
    old = await start_worker(SIM)
    gateway = await start_gateway(old)
    assert (await gateway.feed())["state"] == "estimated"
    await old.stop()
    await start_worker(msgspec.structs.replace(WITH_EVENTS, port=port_of(old)))
    await until(lambda: _feed_states(gateway) == ["live"])


async def test_a_worker_that_fails_to_tell_keeps_what_it_told(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A 500 of /kv_event_sources or /metrics does not end what is known."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(worker)

    def broken(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(worker.publisher, "listing", broken)
    before = gateway.gateway.monitor.listings[worker.url]
    await until(lambda: gateway.gateway.monitor.listings[worker.url] is not before)
    assert held(gateway, worker) > 0
    assert (await gateway.feed())["state"] == "live"


# --- a stream of events in the hands of the test


@asynccontextmanager
async def publishing() -> AsyncIterator[tuple[str, "Publisher"]]:
    """A PUB socket on a free port: its endpoint and how to send."""
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        yield f"tcp://127.0.0.1:{port}", Publisher(socket)


class Publisher:
    """Sends batches with any sequence number."""

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket

    def events(self, sequence: int, *events: KVEvent) -> None:
        """A well-formed batch."""
        batch = EventBatch(timestamp=0.0, events=tuple(events), rank=0)
        self.payload(sequence, encode_batch(batch))

    def payload(self, sequence: int, payload: bytes) -> None:
        """Any bytes as a batch."""
        self._socket.send_multipart(encode_frames(b"", sequence, payload))

    def frames(self, frames: Sequence[bytes]) -> None:
        """Anything at all."""
        self._socket.send_multipart(list(frames))


def stored(number: int, parent: int | None = None) -> BlockStored:
    """A block of 16 tokens."""
    ids = pack_ids(range(16 * number, 16 * number + 16))
    return BlockStored(hashes=(number,), parent=parent, token_ids=ids, block_size=16)


async def subscribed(
    start_gateway: StartGateway, worker: SimWorker, endpoint: str, **options: Any
) -> Running:
    """A gateway that follows `endpoint` as the worker's."""
    source = EventEndpoint(worker.url, 0, endpoint)
    gateway = await start_gateway(worker, kv_events=(source,), **options)
    await asyncio.sleep(0.3)  # the publisher hears of the subscription
    return gateway


async def test_a_gap_in_the_events(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Missed batches: degraded, in metrics and on the page, until all is settled."""
    worker = await start_worker(SIM)
    async with publishing() as (endpoint, publisher):
        gateway = await subscribed(start_gateway, worker, endpoint)
        publisher.events(0, stored(1))
        await until(lambda: held(gateway, worker) == 1)
        assert (await gateway.feed())["complete"] is True
        publisher.events(5, stored(2))
        await until(lambda: held(gateway, worker) == 2)
        feed = await gateway.feed()
        assert (feed["state"], feed["complete"]) == ("degraded", False)
        assert (feed["reason"], feed["last_sequence"]) == ("missed batches", 5)
        assert await gateway.metric("event_gaps_total") == 1
        owner = {"worker": worker.url, "rank": "0"}
        assert await gateway.metric("feed_state", state="degraded", **owner) == 1
        assert await gateway.metric("feed_state", state="live", **owner) == 0
        (page,) = (await gateway.get("/gateway/index"))["owners"]
        assert (page["gaps"], page["suspect_blocks"]) == (1, 1)
        publisher.events(6, BlockRemoved(hashes=(1,)))
        await until(lambda: _feed_states(gateway) == ["live"])


async def test_broken_events_are_skipped(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Counted by reason, logged once each, and the feed goes on."""
    worker = await start_worker(SIM)
    async with publishing() as (endpoint, publisher):
        gateway = await subscribed(start_gateway, worker, endpoint)
        publisher.events(0, stored(1))
        for sequence in range(1, 4):
            publisher.payload(sequence, b"\xc1 no msgpack")
        publisher.frames([b"one frame"])
        publisher.frames([b"", b"short", b"x"])
        publisher.events(4, stored(2, parent=1))
        await until(lambda: held(gateway, worker) == 2)
        metric = "undecodable_events_total"
        assert await gateway.metric(metric, reason="batch") == 3
        assert await gateway.metric(metric, reason="frames") == 2
        assert await gateway.metric("kv_events_total", kind="stored") == 2
        assert (await gateway.feed())["state"] == "degraded"
        lines = [r for r in caplog.records if "undecodable: batch" in r.getMessage()]
        assert len(lines) == 1


async def test_a_silent_worker(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Requests that must have stored blocks, and no event: silent, not trusted."""
    worker = await start_worker(SIM)
    async with publishing() as (endpoint, _):
        gateway = await subscribed(start_gateway, worker, endpoint)
        (known,) = gateway.gateway.pool.workers
        feed: Any = known.knowledge[0].feed
        feed.settings = msgspec.structs.replace(feed.settings, silent_after_s=0.1)
        assert (await gateway.feed())["state"] == "live"
        await gateway.chat(TURN)
        await until(lambda: _feed_states(gateway) == ["silent"])
        page = await gateway.feed()
        assert "no events" in page["reason"]
        await gateway.chat(TURN)
        predicted, delivered = await gateway.hits()
        assert predicted == delivered > 0  # from history


async def test_an_endpoint_that_cannot_be_followed(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Said in the log and by the feed's state; requests are served."""
    worker = await start_worker(SIM)
    source = EventEndpoint(worker.url, 0, "tcp://no host:1")
    gateway = await start_gateway(worker, kv_events=(source,))
    await until(lambda: _feed_states(gateway) == ["degraded"])
    assert "cannot follow" in (await gateway.feed())["reason"]
    assert "cannot follow tcp://no host:1" in caplog.text
    await gateway.chat(TURN)


async def test_a_fault_of_ours_is_logged_and_watching_goes_on(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug in the background costs neither the program nor the feeds for ever."""
    monkeypatch.setattr("gateway.app.AFTER_FAULT_S", 0.05)
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    real = gateway.gateway.pool.listed
    faults = 1

    def listed(*args: Any) -> None:
        nonlocal faults
        faults -= 1
        if faults == 0:
            raise KeyError("a bug")
        real(*args)

    monkeypatch.setattr(gateway.gateway.pool, "listed", listed)
    await until(lambda: faults < -1)
    assert await gateway.metric("internal_errors_total", where="background") == 1
    await asyncio.sleep(0.3)  # followed again
    await gateway.chat(TURN)
    await gateway.until_events_arrive(worker)
    await until(lambda: _feed_states(gateway) == ["live"])
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    assert known.state is WorkerState.ready
