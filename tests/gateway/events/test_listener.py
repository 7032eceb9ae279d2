"""Publishers that connect to the gateway: whose events are they, and whole or not."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zmq

from gateway.settings.values import EventTopic
from gateway.workers import monitor
from kvindex.blocks import pack_ids
from kvindex.events import BlockStored, EventBatch
from kvindex.wire.vllm import encode_batch, encode_frames
from simworker.server import SimWorker
from tests.gateway.fed import (
    TURN,
    feeds,
    held,
    options,
    sim,
    states,
    told,
    turn,
)
from tests.running import SIM, Running, StartGateway, StartWorker, free_port, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at workers often enough for a test."""
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)


class Connecting:
    """A PUB socket that connects, as some publishers do."""

    def __init__(self, socket: "zmq.Socket[bytes]", topic: str) -> None:
        self._socket = socket
        self._topic = topic.encode()

    def stored(self, sequence: int, *numbers: int, rank: int | None = 0) -> None:
        """A batch of blocks, each with a prompt of its own."""
        events = tuple(
            BlockStored(
                hashes=(number,),
                token_ids=pack_ids(range(16 * number, 16 * number + 16)),
                block_size=16,
            )
            for number in numbers
        )
        batch = EventBatch(timestamp=0.0, events=events, rank=rank)
        frames = encode_frames(self._topic, sequence, encode_batch(batch))
        self._socket.send_multipart(frames)


@contextmanager
def connecting(endpoint: str, *topics: str) -> Iterator[list[Connecting]]:
    """A publisher per topic, connected to `endpoint`."""
    with zmq.Context() as context:
        sockets = [context.socket(zmq.PUB) for _ in topics]
        for socket in sockets:
            socket.connect(endpoint)
        try:
            pairs = zip(sockets, topics, strict=True)
            yield [Connecting(socket, topic) for socket, topic in pairs]
        finally:
            for socket in sockets:
                socket.close(linger=0)


def topic_of(worker: SimWorker) -> str:
    """The topic in its usual form."""
    return f"kv@{worker.url.removeprefix('http://')}@org/model@v1"


async def listening(
    start_gateway: StartGateway, *workers: SimWorker, **given: Any
) -> tuple[Running, str]:
    """A gateway with an event socket of its own, and where that is."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    gateway = await start_gateway(*workers, kv_events_bind=endpoint, **given)
    return gateway, endpoint


async def test_a_worker_that_connects(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A real publisher that connects is heard by its declared topic."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    worker = await start_worker(
        options(kv_events_connect=endpoint, kv_events_topic="mine", replay_port=0)
    )
    gateway = await start_gateway(
        worker,
        kv_events_bind=endpoint,
        kv_events_topic=(EventTopic(worker.url, "mine"),),
    )
    await asyncio.sleep(0.5)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    await sim(gateway, worker, "/sim/faults", drop=1)
    await gateway.chat(turn(1))
    await gateway.chat(turn(2))
    await until(lambda: feeds(gateway, worker)[0].counters.replayed >= 1)
    await until(lambda: states(gateway, worker) == ["live"])
    assert await told(gateway, turn(1)) >= 8 * 16


async def test_a_worker_that_tells_where_it_connects_to(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is the gateway's own socket: nobody connects there, all is heard from the
    first batch on."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    worker = await start_worker(
        options(
            kv_events_connect=endpoint,
            kv_events_topic="kv@127.0.0.1@m",
            replay_port=0,
        )
    )
    gateway = await start_gateway(worker, kv_events_bind=endpoint)
    await asyncio.sleep(0.5)
    feed = feeds(gateway, worker)[0]
    assert (feed.state, feed.reason) == ("live", "no batch yet")
    assert (await gateway.feed())["source"] == "--kv-events-bind"
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    await gateway.chat(turn(1))
    await until(lambda: states(gateway, worker) == ["live"])
    assert (feed.state, feed.reason, feed.complete) == ("live", "", True)
    assert feeds(gateway, worker)[0] is feed
    assert not [r for r in caplog.records if "degraded" in r.getMessage()]


async def test_ranks_that_connect_to_ports_of_their_own(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Data-parallel rank r connects to the port of rank 0 plus r."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    topic = "kv@127.0.0.1@m"
    connects = {"kv_events_connect": endpoint, "kv_events_topic": topic}
    worker = await start_worker(
        options(data_parallel_size=2, replay_port=0, **connects)
    )
    gateway = await start_gateway(worker, kv_events_bind=endpoint)
    for number in range(4):
        await gateway.chat(turn(number))
    await until(lambda: states(gateway, worker) == ["live", "live"])

    def heard() -> bool:
        owners = [feed.owner for feed in feeds(gateway, worker).values()]
        return all(owner and owner.blocks >= 8 for owner in owners)

    await asyncio.sleep(1.5)  # the second port is bound, and connected to
    for number in range(4, 8):
        await gateway.chat(turn(number))
    await until(heard)


async def test_topics_in_the_usual_form(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """`kv@HOST:PORT@MODEL` is the worker at that address; a model may have an @."""
    one, two = await start_worker(SIM), await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, one, two)
    assert states(gateway, one) == ["estimated"]
    with connecting(endpoint, topic_of(one), topic_of(two)) as (first, second):
        await asyncio.sleep(0.3)
        first.stored(0, 1)
        second.stored(0, 2, 3)
        await until(lambda: (held(gateway, one), held(gateway, two)) == (1, 2))
        assert states(gateway, one) == states(gateway, two) == ["live"]
        first.stored(1, 4)
        await until(lambda: held(gateway, one) == 2)
    assert feeds(gateway, one)[0].counters.gaps == 0


async def test_ranks_are_told_by_the_batches(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Ranks share a topic, each with numbers of its own; absurd ones are nobody's."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topic = topic_of(worker)
    with connecting(endpoint, topic) as (publisher,):
        await asyncio.sleep(0.3)
        publisher.stored(0, 1, rank=0)
        publisher.stored(0, 2, 3, rank=1)
        publisher.stored(0, 4, rank=-1)
        publisher.stored(0, 4, rank=10**6)
        publisher.stored(1, 5, rank=0)
        await until(lambda: held(gateway, worker) == 4)
        assert list(feeds(gateway, worker)) == [0, 1]
        blocks = [feed.owner for feed in feeds(gateway, worker).values()]
        assert [owner and owner.blocks for owner in blocks] == [2, 2]
        publisher.stored(2, 6, rank=None)  # early releases tell no rank
        await until(lambda: held(gateway, worker) == 5)


async def test_a_worker_that_does_not_answer(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its events may be lost, and nothing else tells; the next one says if any were."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    with connecting(endpoint, topic_of(worker)) as (publisher,):
        await asyncio.sleep(0.3)
        publisher.stored(0, 1)
        await until(lambda: states(gateway, worker) == ["live"])
        gateway.gateway.pool.failed(known, "connect")
        await until(lambda: states(gateway, worker) == ["degraded"])
        feed = feeds(gateway, worker)[0]
        assert feed.reason == "its worker is suspect: connect"
        gateway.gateway.pool.answered(known)
        publisher.stored(1, 2)
        await until(lambda: states(gateway, worker) == ["live"])
        assert (held(gateway, worker), feed.complete) == (2, True)


async def test_a_topic_of_nobody(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line about each, which names it; the others are heard."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topics = ("stranger", "kv@10.9.9.9:1@m", "kv@", topic_of(worker))
    with connecting(endpoint, *topics) as (*strangers, own):
        await asyncio.sleep(0.3)
        for sequence in range(3):
            for stranger in strangers:
                stranger.stored(sequence, 1)
        own.stored(0, 1)
        await until(lambda: held(gateway, worker) == 1)
        await asyncio.sleep(0.1)
    lines = [r.getMessage() for r in caplog.records if "no worker's" in r.getMessage()]
    assert len(lines) == 3
    assert "'stranger'" in lines[0]
    assert "--kv-events-topic" in lines[0]


async def test_two_publishers_under_one_topic(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Numbers by turns: it is said, what is held is in doubt, nothing is cleared."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topic = topic_of(worker)
    with connecting(endpoint, topic, topic) as (one, other):
        await asyncio.sleep(0.3)
        for sequence in range(100, 110):
            one.stored(sequence, sequence)
        await until(lambda: held(gateway, worker) == 10)
        for step in range(10):
            other.stored(7 + step, 1000 + step)
            await asyncio.sleep(0.01)
            one.stored(110 + step, 2000 + step)
            await asyncio.sleep(0.01)
        await until(lambda: "share" in feeds(gateway, worker)[0].reason)
        assert states(gateway, worker) == ["degraded"]
        assert feeds(gateway, worker)[0].counters.restarts == 0
        assert held(gateway, worker) >= 10
        for sequence in range(120, 190):  # the other one is gone
            one.stored(sequence, sequence)
        await until(lambda: feeds(gateway, worker)[0].last_sequence == 189)
        assert feeds(gateway, worker)[0].counters.restarts == 0
    shared = [r for r in caplog.records if "two publishers share" in r.getMessage()]
    assert len(shared) == 1


async def test_a_publisher_that_begins_anew(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A step back that stays one is a restart, soon and with few batches, too."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    with connecting(endpoint, topic_of(worker)) as (publisher,):
        await asyncio.sleep(0.3)
        for sequence in range(100, 110):
            publisher.stored(sequence, sequence)
        await until(lambda: held(gateway, worker) == 10)
        publisher.stored(0, 1)
        await until(lambda: held(gateway, worker) == 1)
        for sequence in range(1, 50):
            publisher.stored(sequence, sequence + 1)
        await until(lambda: held(gateway, worker) == 50)
    feed = feeds(gateway, worker)[0]
    assert (feed.counters.restarts, feed.state, feed.complete) == (1, "live", True)


async def test_a_port_that_is_taken(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
    busy_port: int,
) -> None:
    """One line; requests are served, by history."""
    worker = await start_worker(SIM)
    endpoint = f"tcp://127.0.0.1:{busy_port}"
    gateway = await start_gateway(worker, kv_events_bind=endpoint)
    await until(lambda: f"cannot listen for KV events at {endpoint}" in caplog.text)
    await gateway.chat(TURN)
    answer = await gateway.chat(TURN)
    assert await gateway.hits() == (answer.cached, answer.cached)
