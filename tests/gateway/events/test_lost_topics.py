"""Workers that lose their topic, as another one tells or has the same."""

import pytest

from router.worker import WorkerSpec
from simworker.server import SimWorker
from tests.gateway.events.connecting import connecting, listening, topic_of
from tests.gateway.events.test_told_topics import chats
from tests.gateway.fed import feeds, held, options, sim, states, turn
from tests.running import SIM, Running, StartGateway, StartWorker, free_port, until

pytestmark = pytest.mark.usefixtures("quick_looks")


def reasons(gateway: Running, worker: SimWorker) -> list[str]:
    """Of its feeds."""
    return [feed.reason for feed in feeds(gateway, worker).values()]


async def test_a_topic_that_a_second_worker_tells(
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """The first one's blocks are in doubt until it is the only one again."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    connects = {"kv_events_connect": endpoint, "kv_events_topic": ""}
    first = await start_worker(options(**connects))
    port = free_port()
    second = f"http://127.0.0.1:{port}"
    gateway = await start_gateway(first, second, kv_events_bind=endpoint)
    await chats(gateway, lambda: held(gateway, first) >= 8)
    assert states(gateway, first) == ["live"]
    other = await start_worker(options(port=port, **connects))
    await until(lambda: states(gateway, first) == ["degraded"])
    (reason,) = reasons(gateway, first)
    assert "told by several" in reason
    assert "--kv-events-topic" in reason
    (feed,) = feeds(gateway, first).values()
    assert feed.owner is not None
    assert feed.owner.suspect_blocks == feed.owner.blocks > 0
    await sim(gateway, first, "/sim/reset")
    await gateway.chat(turn(100))
    assert reasons(gateway, first) == [reason]
    await gateway.gateway.fleet.remove(other.url)
    await chats(gateway, lambda: reasons(gateway, first) != [reason])
    await sim(gateway, first, "/sim/reset")  # what may have been missed is gone
    await chats(gateway, lambda: states(gateway, first) == ["live"])
    assert feed.complete
    assert feed.counters.cleared > 0


@pytest.mark.parametrize("missed", [False, True])
async def test_a_host_that_is_not_one_workers_any_more(
    missed: bool,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A topic without a port was its worker's: what comes meanwhile is missed."""
    first, second = [await start_worker(SIM) for _ in range(2)]
    gateway, endpoint = await listening(start_gateway, first)
    async with connecting(endpoint, "kv@127.0.0.1@m") as (publisher,):
        publisher.stored(0, 1)
        await until(lambda: held(gateway, first) == 1)
        gateway.gateway.fleet.add(WorkerSpec(url=second.url))
        await until(lambda: states(gateway, first) == ["degraded"])
        (reason,) = reasons(gateway, first)
        assert reason.startswith("its topic is no worker's")
        if missed:
            publisher.stored(1, 2)
            await until(lambda: "m' is no worker's" in caplog.text)
        await gateway.gateway.fleet.remove(second.url)
        publisher.stored(1 + missed, 3)
        await until(lambda: held(gateway, first) == 2)
        assert states(gateway, first) == ["degraded" if missed else "live"]
        assert reasons(gateway, first) == ["missed batches" if missed else ""]
        assert feeds(gateway, first)[0].complete is not missed


async def test_a_worker_that_has_another_topic_now(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its events count again as soon as they come under one of its own."""
    first, second = [await start_worker(SIM) for _ in range(2)]
    gateway, endpoint = await listening(start_gateway, first)
    topics = "kv@127.0.0.1@m", topic_of(first)
    async with connecting(endpoint, *topics) as (before, after):
        before.stored(0, 1)
        await until(lambda: held(gateway, first) == 1)
        gateway.gateway.fleet.add(WorkerSpec(url=second.url))
        await until(lambda: states(gateway, first) == ["degraded"])
        after.stored(1, 2)
        await until(lambda: states(gateway, first) == ["live"])
        assert held(gateway, first) == 2
