"""A stream of events in the hands of the test: gaps, garbage, silence."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import zmq

from gateway.settings.values import EventEndpoint
from kvindex.blocks import pack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch, KVEvent
from kvindex.feed import FeedSettings
from kvindex.wire.vllm import encode_batch, encode_frames
from simworker.server import SimWorker
from tests.running import (
    SIM,
    Running,
    StartGateway,
    StartWorker,
    until,
)

TEXT = "Which harbour is the oldest that is still in use, and who says so? " * 12
TURN = [{"role": "user", "content": TEXT}]


def held(gateway: Running, worker: SimWorker) -> int:
    """The blocks that the index has for a worker."""
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    owner = known.knowledge[0].feed.owner
    return owner.blocks if owner else 0


def _feed_states(gateway: Running) -> list[str]:
    workers = gateway.gateway.pool.workers
    return [known.feed.state for w in workers for known in w.knowledge.values()]


@asynccontextmanager
async def publishing() -> AsyncIterator["Publisher"]:
    """A socket that publishes on a free port."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.set(zmq.LINGER, 0)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        yield Publisher(socket, f"tcp://127.0.0.1:{port}")


class Publisher:
    """Sends batches with any sequence number."""

    def __init__(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        self._socket = socket
        self.endpoint = endpoint

    def events(self, sequence: int, *events: KVEvent) -> None:
        """A well-formed batch."""
        batch = EventBatch(timestamp=0.0, events=tuple(events), rank=0)
        self.payload(sequence, encode_batch(batch))

    def payload(self, sequence: int, payload: bytes) -> None:
        """Any bytes as a batch."""
        self._socket.send_multipart(encode_frames(b"", sequence, payload))

    async def heard(self) -> None:
        """Wait for the first subscription: what is sent before is lost."""
        await until(partial(self._socket.poll, 0))

    def frames(self, frames: Sequence[bytes]) -> None:
        """Anything at all."""
        self._socket.send_multipart(list(frames))


def stored(number: int, parent: int | None = None) -> BlockStored:
    """A block of 16 tokens."""
    ids = pack_ids(range(16 * number, 16 * number + 16))
    return BlockStored(hashes=(number,), parent=parent, token_ids=ids, block_size=16)


async def subscribed(
    start_gateway: StartGateway,
    worker: SimWorker,
    publisher: Publisher,
    **options: Any,
) -> Running:
    """A gateway that follows `publisher` as the worker's."""
    source = EventEndpoint(worker.url, 0, publisher.endpoint)
    gateway = await start_gateway(worker, kv_events=(source,), **options)
    known = gateway.gateway.pool.workers[0].knowledge
    await until(lambda: known[0].feed.reached)
    await publisher.heard()
    return gateway


async def test_a_gap_in_the_events(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Missed batches: degraded, in metrics and on the page, until all is settled."""
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
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
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
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
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests that must have stored blocks, and no event: silent, not trusted."""
    soon = partial(FeedSettings, silent_after_s=0.1)
    monkeypatch.setattr("gateway.events.ingest.FeedSettings", soon)
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
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
