"""Event batches over real sockets: numbered, replayable, as vLLM frames them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import zmq
import zmq.asyncio

from kvindex.blocks import pack_ids
from kvindex.events import BlockRemoved, BlockStored
from kvindex.wire.vllm import decode_batch, decode_frames
from simworker.faults.record import Faults
from simworker.options import PublisherOptions, SimOptions
from simworker.publisher import Publisher

STORED = BlockStored(
    hashes=(1, 2), token_ids=pack_ids(range(8)), block_size=4, extra_keys=(None, None)
)
REMOVED = BlockRemoved(hashes=(1,), medium="GPU", group=0)


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    """A context whose sockets are all closed at the end."""
    context = zmq.asyncio.Context()
    yield context
    context.destroy(linger=0)


@asynccontextmanager
async def subscribed(
    context: zmq.asyncio.Context, endpoint: str, topic: bytes = b""
) -> AsyncIterator[zmq.asyncio.Socket]:
    """A subscriber, with time to connect: what is sent before is lost to it."""
    with context.socket(zmq.SUB) as socket:
        socket.subscribe(topic)
        socket.connect(endpoint)
        await asyncio.sleep(0.5)
        yield socket


async def replay(
    context: zmq.asyncio.Context, endpoint: str, first: int
) -> list[list[bytes]]:
    """All messages of a replay, the end marker included."""
    messages: list[list[bytes]] = []
    with context.socket(zmq.DEALER) as socket:
        socket.connect(endpoint)
        async with asyncio.timeout(5):
            await socket.send_multipart([b"", first.to_bytes(8)])
            while not messages or b"\xff" * 8 not in messages[-1]:
                messages.append(await socket.recv_multipart())
    return messages


async def test_batches_are_numbered_and_decodable(
    context: zmq.asyncio.Context,
) -> None:
    """A subscriber gets topic, sequence from 0 and what was published."""
    publisher = Publisher(PublisherOptions(topic="kv@a@m"), rank=3)
    publisher.start()
    async with subscribed(context, publisher.endpoint, b"kv@a") as socket:
        publisher.publish([STORED])
        publisher.publish([REMOVED, STORED])
        async with asyncio.timeout(5):
            messages = [await socket.recv_multipart() for _ in range(2)]
    for number, (frames, events) in enumerate(
        zip(messages, [(STORED,), (REMOVED, STORED)], strict=True)
    ):
        topic, sequence, payload = decode_frames(frames)
        assert (topic, sequence) == (b"kv@a@m", number)
        batch = decode_batch(payload)
        assert (batch.events, batch.rank, batch.undecodable) == (events, 3, ())
    assert publisher.next_sequence == 2
    await publisher.stop()


@pytest.mark.parametrize("legacy", [False, True])
async def test_replay(context: zmq.asyncio.Context, legacy: bool) -> None:
    """A dealer gets the kept batches from a number on, then the end marker."""
    options = PublisherOptions(
        topic="t", replay_port=0, buffer_batches=3, legacy_replay=legacy
    )
    publisher = Publisher(options)
    publisher.start()
    for _ in range(5):
        publisher.publish([STORED])
    assert publisher.replay_endpoint is not None
    for first, numbers in ((0, [2, 3, 4]), (4, [4]), (9, [])):
        *messages, end = await replay(context, publisher.replay_endpoint, first)
        assert (
            end == [b"", b"\xff" * 8, b""] if legacy else [b"", b"", b"\xff" * 8, b""]
        )
        assert {len(message) for message in messages} <= {3 if legacy else 4}
        decoded = [decode_frames(message[0 if legacy else 1 :]) for message in messages]
        assert [sequence for _, sequence, _ in decoded] == numbers
        assert all(decode_batch(payload).events == (STORED,) for *_, payload in decoded)
    await publisher.stop()


async def test_a_malformed_replay_request_is_ignored(
    context: zmq.asyncio.Context,
) -> None:
    """The next good request is answered."""
    publisher = Publisher(PublisherOptions(replay_port=0))
    publisher.start()
    publisher.publish([STORED])
    assert publisher.replay_endpoint is not None
    with context.socket(zmq.DEALER) as socket:
        socket.connect(publisher.replay_endpoint)
        await socket.send_multipart([b"what"])
        await socket.send_multipart([b"", b"short"])
    assert len(await replay(context, publisher.replay_endpoint, 0)) == 2
    await publisher.stop()


async def test_endpoints_as_the_engine_lists_them() -> None:
    """A chosen port is listed with its address, a given one as it was configured."""
    chosen = Publisher(PublisherOptions(topic="x"))
    chosen.start()
    listing = chosen.listing()
    port = int(chosen.endpoint.rpartition(":")[2])
    await chosen.stop()
    assert listing == {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://127.0.0.1:{port}",
        "replay_endpoint": None,
        "buffer_steps": 10_000,
        "hwm": 100_000,
        "max_queue_size": 100_000,
        "topic": "x",
    }
    given = Publisher(PublisherOptions(port=port))
    given.start()
    assert given.listing()["endpoint"] == f"tcp://*:{port}"
    assert given.endpoint == f"tcp://127.0.0.1:{port}"
    await given.stop()


async def test_a_taken_port() -> None:
    """Binding a port in use fails at once and leaves nothing open."""
    first = Publisher(PublisherOptions())
    first.start()
    port = int(first.endpoint.rpartition(":")[2])
    second = Publisher(PublisherOptions(replay_port=port))
    with pytest.raises(OSError, match="in use"):
        second.start()
    await second.stop()
    await first.stop()


async def test_publishing_never_waits(context: zmq.asyncio.Context) -> None:
    """A subscriber that does not read loses batches; the publisher goes on."""
    publisher = Publisher(PublisherOptions(high_water_mark=1))
    publisher.start()
    big = BlockStored(
        hashes=(1,), token_ids=pack_ids(range(100_000)), block_size=100_000
    )
    async with subscribed(context, publisher.endpoint):
        for _ in range(200):
            publisher.publish([big])
    assert publisher.next_sequence == 200
    await publisher.stop()


async def test_a_publisher_that_connects(context: zmq.asyncio.Context) -> None:
    """Whoever listens binds; a rank's number is added to the port."""
    with context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        options = SimOptions(kv_events_connect=f"tcp://127.0.0.1:{port - 1}")
        publisher = Publisher(options.publisher_options(rank=1), rank=1)
        publisher.start()
        assert publisher.listing()["endpoint"] == f"tcp://127.0.0.1:{port}"
        async with asyncio.timeout(5):
            received = asyncio.ensure_future(socket.recv_multipart())
            while not received.done():
                publisher.publish([STORED])
                await asyncio.sleep(0.02)
        topic, _, payload = decode_frames(received.result())
        assert topic == b"kv-events"
        assert decode_batch(payload).rank == 1
        await publisher.stop()


@pytest.mark.parametrize(
    ("how", "numbers", "ends"),
    [("cut", [0, 1, 2], False), ("hang", [0], False), ("refuse", [], False)],
)
async def test_replays_that_fail(
    context: zmq.asyncio.Context, how: str, numbers: list[int], ends: bool
) -> None:
    """Without an end, after the first batch, or without any answer."""
    publisher = Publisher(PublisherOptions(replay_port=0))
    publisher.start()
    for _ in range(3):
        publisher.publish([STORED])
    publisher.line.play(Faults(replay=how))
    assert publisher.replay_endpoint is not None
    assert await answered(context, publisher.replay_endpoint) == numbers
    assert publisher.line.played == {f"replay_{how}": 1}
    publisher.line.play(Faults())
    assert len(await replay(context, publisher.replay_endpoint, 0)) == 4
    await publisher.stop()


async def test_a_slow_replay(context: zmq.asyncio.Context) -> None:
    """Each batch takes its time; what was lost on its way is there."""
    publisher = Publisher(PublisherOptions(replay_port=0))
    publisher.start()
    publisher.line.play(Faults(replay="slow", pause_s=0.1, drop=3))
    for _ in range(3):
        publisher.publish([STORED])
    assert publisher.replay_endpoint is not None
    begun = time.monotonic()
    assert len(await replay(context, publisher.replay_endpoint, 0)) == 4
    assert time.monotonic() - begun >= 0.3
    await publisher.stop()


async def answered(context: zmq.asyncio.Context, endpoint: str) -> list[int]:
    """The numbers of what a replay brings within half a second, its end not among."""
    numbers = []
    with context.socket(zmq.DEALER) as socket:
        socket.connect(endpoint)
        await socket.send_multipart([b"", bytes(8)])
        while await socket.poll(500):
            frames = await socket.recv_multipart()
            numbers.append(decode_frames(frames[1:])[1])
    return numbers


async def test_an_end_at_once() -> None:
    """Stopped before it could serve a replay, a publisher closes all it opened."""
    publisher = Publisher(PublisherOptions(replay_port=0))
    publisher.start()
    await publisher.stop()
    publisher.start()
    publisher.close()
    assert publisher.next_sequence == 0
