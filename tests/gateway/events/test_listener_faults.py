"""Publishers that connect to the gateway and are not what they should be."""

import asyncio

import pytest

from gateway.events import listener, turns
from tests.gateway.events.connecting import connecting, listening, topic_of
from tests.gateway.fed import (
    TURN,
    feeds,
    held,
    states,
)
from tests.running import SIM, StartGateway, StartWorker, until

pytestmark = pytest.mark.usefixtures("quick_looks")


async def test_a_worker_that_does_not_answer(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its events may be lost, and nothing else tells; the next one says if any were."""
    monkeypatch.setattr(listener, "IDLE_MS", 10)  # it is looked at before it recovers
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    async with connecting(endpoint, topic_of(worker)) as (publisher,):
        publisher.stored(0, 1)
        await until(lambda: states(gateway, worker) == ["live"])
        gateway.gateway.pool.failed(known, "connect")
        doubted = "degraded (its worker is suspect: connect)"
        await until(lambda: doubted in caplog.text)  # it may recover at once
        feed = feeds(gateway, worker)[0]
        gateway.gateway.pool.answered(known)
        publisher.stored(1, 2)
        await until(lambda: held(gateway, worker) == 2)
        await until(lambda: states(gateway, worker) == ["live"])
        assert feed.complete


async def test_a_topic_of_nobody(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line about each, which names it; the others are heard."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topics = ("stranger", "kv@10.9.9.9:1@m", "kv@", topic_of(worker))
    async with connecting(endpoint, *topics) as (*strangers, own):
        for sequence in range(3):
            for stranger in strangers:
                stranger.stored(sequence, 1)
        own.stored(0, 1)
        await until(lambda: held(gateway, worker) == 1)
        await until(lambda: caplog.text.count("no worker's") >= 3)
        await asyncio.sleep(0.1)
    lines = [r.getMessage() for r in caplog.records if "no worker's" in r.getMessage()]
    assert len(lines) == 3
    assert sum("'stranger'" in line for line in lines) == 1  # they come in any order
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
    async with connecting(endpoint, topic, topic) as (one, other):
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


async def test_two_slow_publishers_under_one_topic(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slower than any wait: their connections tell, and nothing is emptied."""
    monkeypatch.setattr(turns, "WAIT_S", 0.01)
    monkeypatch.setattr(listener, "IDLE_MS", 10)
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topic = topic_of(worker)
    async with connecting(endpoint, topic) as (one,):
        one.stored(5, 1, 2, 3)
        await until(lambda: held(gateway, worker) == 3)
        feed = feeds(gateway, worker)[0]
        async with connecting(endpoint, topic) as (other,):
            for step in range(3):
                other.stored(4 + step, 10 + step)
                await asyncio.sleep(0.2)
                one.stored(6 + step, 20 + step)
                await asyncio.sleep(0.2)
            assert (feed.state, feed.counters.restarts) == ("degraded", 0)
            assert "two publishers share" in feed.reason
            assert held(gateway, worker) == 3
        await asyncio.sleep(0.2)
        one.stored(9, 30)
        await until(lambda: held(gateway, worker) == 4)
        assert feed.counters.restarts == 0


async def test_of_two_publishers_the_other_is_left(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What is held was never its own: it goes."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topic = topic_of(worker)
    async with connecting(endpoint, topic) as (one,):
        one.stored(50, 1, 2, 3)
        await until(lambda: held(gateway, worker) == 3)
        feed = feeds(gateway, worker)[0]
        async with connecting(endpoint, topic) as (other,):
            other.stored(7, 40)
            await until(lambda: "two publishers share" in feed.reason)
            one.close()
            await until(lambda: feed.counters.restarts == 1)
            other.stored(8, 41)
            await until(lambda: held(gateway, worker) == 1)
    assert not feed.complete


async def test_a_publisher_that_ends(
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """Batches may be missed from then on; the next one tells: it went on, or anew."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    topic = topic_of(worker)
    async with connecting(endpoint, topic) as (one,):
        one.stored(5, 1, 2, 3)
        await until(lambda: held(gateway, worker) == 3)
    feed = feeds(gateway, worker)[0]
    await until(lambda: (feed.state, feed.reason) == ("degraded", "connection lost"))
    async with connecting(endpoint, topic) as (one,):
        one.stored(6, 4)
        await until(lambda: held(gateway, worker) == 4)
        assert (feed.state, feed.counters.gaps) == ("live", 0)
    async with connecting(endpoint, topic) as (one,):
        one.stored(0, 5)
        await until(lambda: held(gateway, worker) == 1)
    assert (feed.counters.restarts, feed.complete) == (1, True)


async def test_a_publisher_that_begins_anew(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A step back that stays one is a restart, soon and with few batches, too."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    async with connecting(endpoint, topic_of(worker)) as (publisher,):
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


async def test_a_publisher_that_begins_anew_early(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its numbers pass those where it was before: it is one publisher all the same."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    async with connecting(endpoint, topic_of(worker)) as (publisher,):
        for sequence in range(4):
            publisher.stored(sequence, sequence)
        await until(lambda: held(gateway, worker) == 4)
        for sequence in range(6):
            publisher.stored(sequence, 100 + sequence)
            await asyncio.sleep(0.1)
        await until(lambda: feeds(gateway, worker)[0].last_sequence == 5)
    feed = feeds(gateway, worker)[0]
    assert (held(gateway, worker), feed.counters.restarts) == (6, 1)
    assert (feed.state, feed.complete) == ("live", True)


async def test_a_publisher_that_begins_anew_while_others_talk(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its old cache goes though the socket is never idle."""
    worker, other = await start_worker(SIM), await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker, other)
    numbers = iter(range(10_000))
    async with connecting(endpoint, topic_of(worker), topic_of(other)) as (
        one,
        talking,
    ):
        for sequence in range(20):
            one.stored(sequence, sequence)
        await until(lambda: held(gateway, worker) == 20)
        one.stored(0, 1000)

        def gone() -> bool:
            number = next(numbers)
            talking.stored(number, number)
            return held(gateway, worker) == 1

        await until(gone)
    assert feeds(gateway, worker)[0].counters.restarts == 1


async def test_numbers_that_nobody_counts_up_to(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as a replay's end mark: no batch, one line; those that follow are heard."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    async with connecting(endpoint, topic_of(worker)) as (publisher,):
        for sequence in (0, 2**64 - 1, 2**63, 1, 2**40, 2):
            publisher.stored(sequence, sequence % 1000)
        await until(lambda: feeds(gateway, worker)[0].last_sequence == 2)
    feed = feeds(gateway, worker)[0]
    assert (held(gateway, worker), feed.counters.missed_batches) == (3, 0)
    assert (feed.state, feed.complete) == ("live", True)
    lines = [r for r in caplog.records if "sends what is no batch" in r.getMessage()]
    assert len(lines) == 1


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
