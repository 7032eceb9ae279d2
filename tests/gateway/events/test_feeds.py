"""Event sockets: what a publisher sends reaches the feed, and the loop stays free."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import zmq

from gateway.events import feeds
from gateway.events.feeds import EventSockets
from gateway.events.slices import Slices, receive_slice
from gateway.workers.engines.facts import EventSource
from kvindex.blocks import pack_ids
from kvindex.events import BlockStored, EventBatch
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.standing import FeedState
from kvindex.wire.vllm import encode_batch, encode_frames
from tests.running import free_port, until

MIB = 1 << 20


class Publisher:
    """A PUB socket that can go and come back at the same address."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set(zmq.SNDHWM, 0)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.source = EventSource(endpoint=self.endpoint)

    def send(self, sequence: int, blocks: int = 1) -> None:
        """A batch of new blocks."""
        events = []
        for number in range(blocks):
            name = sequence * 1000 + number
            ids = pack_ids([name] * 16)
            events.append(
                BlockStored(hashes=(name,), parent=None, token_ids=ids, block_size=16)
            )
        batch = EventBatch(timestamp=0.0, events=tuple(events), rank=0)
        self._socket.send_multipart(encode_frames(b"", sequence, encode_batch(batch)))

    def leave(self) -> None:
        """Close the socket."""
        self._socket.close(linger=0)

    def come_back(self) -> None:
        """Bind it again."""
        self._socket = self._context.socket(zmq.PUB)
        self._socket.bind(self.endpoint)

    def close(self) -> None:
        """End."""
        self._context.destroy(linger=0)


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    """A publisher, closed after the test."""
    publisher = Publisher()
    yield publisher
    publisher.close()


@pytest.fixture
def feed() -> Feed:
    """A feed of a worker with blocks of 16."""
    return Feed(
        model="m",
        indexes=Indexes(limit_bytes=64 * MIB),
        key="w",
        clock=time.monotonic,
        block_size=16,
    )


@pytest.fixture
async def sockets() -> AsyncIterator[EventSockets]:
    """Sockets, closed after the test."""
    sockets = EventSockets(Slices())
    yield sockets
    sockets.close()


async def connected(publisher: Publisher, feed: Feed) -> None:
    """Wait until the feed hears the publisher; batch 0 is sent for that."""
    await until(lambda: feed.reached)
    await asyncio.sleep(0.2)
    publisher.send(0)
    await until(lambda: feed.last_sequence == 0)


def ignore() -> None:
    """Nobody looks."""


def blocks(feed: Feed) -> int:
    """The blocks held."""
    return feed.owner.blocks if feed.owner else 0


async def test_batches_arrive(
    sockets: EventSockets, publisher: Publisher, feed: Feed
) -> None:
    """In order, whole, until cancelled; no socket is left then."""
    follow = asyncio.create_task(sockets.follow(feed, publisher.source, ignore))
    await connected(publisher, feed)
    for sequence in range(1, 50):
        publisher.send(sequence, blocks=3)
    await until(lambda: feed.last_sequence == 49)
    assert blocks(feed) == 1 + 49 * 3
    assert (feed.state, feed.complete) == (FeedState.LIVE, True)
    follow.cancel()
    await asyncio.wait({follow})
    publisher.send(50)
    await asyncio.sleep(0.1)
    assert feed.last_sequence == 49


async def test_a_flood_leaves_the_loop_free(
    sockets: EventSockets, publisher: Publisher, feed: Feed
) -> None:
    """Thousands of batches at once are taken in slices."""
    follow = asyncio.create_task(sockets.follow(feed, publisher.source, ignore))
    await connected(publisher, feed)
    for sequence in range(1, 3000):
        publisher.send(sequence)
    turns = 0
    async with asyncio.timeout(20):
        while feed.last_sequence != 2999:
            await asyncio.sleep(0)
            turns += 1
    assert turns > 20
    assert feed.counters.gaps == 0
    follow.cancel()
    await asyncio.wait({follow})


def test_a_slice_is_short() -> None:
    """No more is received once the slice is over."""
    received: list[int] = []

    class Endless:
        def recv_multipart(self, flags: int) -> list[bytes]:
            return encode_frames(b"", len(received), b"x")

    class Slow:
        def receive(self, sequence: int, payload: bytes) -> None:
            received.append(sequence)
            time.sleep(0.001)

    socket: Any = Endless()
    feed: Any = Slow()
    end = time.monotonic() + 0.005
    receive_slice(socket, lambda frames: feed.receive(0, b""), end)
    assert 1 <= len(received) <= 6


async def test_a_lost_connection(
    sockets: EventSockets, publisher: Publisher, feed: Feed
) -> None:
    """Both its loss and its return are told; the feed goes on."""
    looks: list[FeedState] = []
    follow = asyncio.create_task(
        sockets.follow(feed, publisher.source, lambda: looks.append(feed.state))
    )
    await connected(publisher, feed)
    assert looks == []
    publisher.leave()
    await until(lambda: len(looks) == 1)
    assert looks == [FeedState.DEGRADED]
    assert feed.reason == "connection lost"
    publisher.come_back()
    await until(lambda: len(looks) == 2)
    await asyncio.sleep(0.2)
    publisher.send(1)
    await until(lambda: feed.last_sequence == 1)
    assert (feed.state, feed.complete) == (FeedState.LIVE, True)
    follow.cancel()
    await asyncio.wait({follow})


async def test_nobody_publishes_there(
    sockets: EventSockets,
    publisher: Publisher,
    feed: Feed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says so before any request, and takes it back once somebody does."""
    monkeypatch.setattr(feeds, "RENEW_MS", 300)
    publisher.leave()
    publisher.endpoint = f"tcp://127.0.0.1:{free_port()}"
    source = EventSource(endpoint=publisher.endpoint)
    follow = asyncio.create_task(sockets.follow(feed, source, ignore))
    await until(lambda: feed.state is FeedState.SILENT)
    assert feed.reason.startswith(f"nothing publishes at {publisher.endpoint}: ")
    assert not feed.reached
    publisher.come_back()
    await until(lambda: feed.state is FeedState.LIVE)
    assert (feed.reason, feed.reached) == ("no batch yet", True)
    await asyncio.sleep(0.2)
    publisher.send(0)
    await until(lambda: feed.complete)
    publisher.leave()
    await until(lambda: feed.state is FeedState.DEGRADED)
    await asyncio.sleep(0.5)
    assert (feed.reason, feed.reached) == ("connection lost", False)
    follow.cancel()
    await asyncio.wait({follow})


async def test_a_batch_without_end_is_not_received(
    sockets: EventSockets,
    publisher: Publisher,
    feed: Feed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends the connection; the next batch is heard on a new one, as a gap."""
    monkeypatch.setattr(feeds, "BATCH_BYTES", 100_000)
    monkeypatch.setattr(feeds, "RENEW_MS", 300)
    looks: list[FeedState] = []
    follow = asyncio.create_task(
        sockets.follow(feed, publisher.source, lambda: looks.append(feed.state))
    )
    await connected(publisher, feed)
    publisher.send(1, blocks=5_000)
    await until(lambda: len(looks) == 2)
    await asyncio.sleep(0.2)
    publisher.send(2)
    await until(lambda: feed.last_sequence == 2)
    assert (feed.counters.batches, feed.counters.gaps) == (2, 1)
    assert blocks(feed) == 2
    follow.cancel()
    await asyncio.wait({follow})


async def test_another_service_at_the_port(
    sockets: EventSockets, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the worker is there it is heard, whatever spoke there before."""
    monkeypatch.setattr(feeds, "RENEW_MS", 300)

    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        await writer.drain()
        writer.close()

    service = await asyncio.start_server(other, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    endpoint = f"tcp://127.0.0.1:{port}"
    follow = asyncio.create_task(
        sockets.follow(feed, EventSource(endpoint=endpoint), ignore)
    )
    await asyncio.sleep(0.5)
    service.close()
    await service.wait_closed()
    with zmq.Context() as context, context.socket(zmq.PUB) as worker:
        worker.bind(endpoint)
        sequence = iter(range(1000))

        def heard() -> bool:
            payload = encode_batch(EventBatch(timestamp=0.0, events=(), rank=0))
            worker.send_multipart(encode_frames(b"", next(sequence), payload))
            return feed.last_sequence is not None

        await until(heard)
    follow.cancel()
    await asyncio.wait({follow})


async def test_messages_that_are_no_batches(
    sockets: EventSockets, publisher: Publisher, feed: Feed
) -> None:
    """They are counted and skipped; so is a number that nobody counts up to."""
    follow = asyncio.create_task(sockets.follow(feed, publisher.source, ignore))
    await connected(publisher, feed)
    absurd = [encode_frames(b"", number, b"x") for number in (2**40, 2**63)]
    for frames in ([b""], [b"a", b"b"], [b""] * 5, [b"", b""], *absurd):
        publisher._socket.send_multipart(frames)
    publisher.send(1)
    await until(lambda: feed.last_sequence == 1)
    assert (feed.counters.undecodable, feed.counters.gaps) == ({"frames": 6}, 0)
    follow.cancel()
    await asyncio.wait({follow})


@pytest.mark.parametrize("endpoint", ["tcp://no host:1", "x://y", "tcp://h", ""])
async def test_endpoints_that_are_none(
    sockets: EventSockets, feed: Feed, endpoint: str
) -> None:
    """ZMQ's own error is raised, and no socket stays."""
    with pytest.raises(zmq.ZMQError):
        await sockets.follow(feed, EventSource(endpoint=endpoint), ignore)
