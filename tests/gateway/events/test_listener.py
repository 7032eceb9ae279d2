"""Publishers that connect to the gateway: whose events are they, and whole or not."""

import asyncio

import msgspec
import pytest

from gateway.settings.values import EventTopic
from tests.gateway.events.connecting import connecting, listening, topic_of
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
from tests.running import SIM, StartGateway, StartWorker, free_port, until

pytestmark = pytest.mark.usefixtures("quick_looks")


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
    async with connecting(endpoint, topic_of(one), topic_of(two)) as (first, second):
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
    two = msgspec.structs.replace(SIM, data_parallel_size=2)
    worker = await start_worker(two)
    gateway, endpoint = await listening(start_gateway, worker)
    topic = topic_of(worker)
    async with connecting(endpoint, topic) as (publisher,):
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


async def test_a_rank_that_the_worker_does_not_have(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No request is sent to it, which the worker would refuse; nothing is credited."""
    worker = await start_worker(SIM)
    gateway, endpoint = await listening(start_gateway, worker)
    async with connecting(endpoint, topic_of(worker)) as (publisher,):
        publisher.stored(0, 1, 2)
        publisher.stored(0, 3, rank=5)
        publisher.stored(1, 4, rank=5)
        publisher.stored(1, 6)
        await until(lambda: held(gateway, worker) == 3)
        for number in range(8):
            await gateway.chat(turn(number))
    (feed,) = feeds(gateway, worker).values()
    assert feed.counters.rejected == {"rank": 2}
    (line,) = [r for r in caplog.records if "of rank 5" in r.getMessage()]
    assert line.levelname == "WARNING"
