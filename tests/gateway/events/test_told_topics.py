"""Publishers that connect under the topic that engines ship with, or one they tell."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.doctor.feed_remedies import for_feed
from gateway.settings.values import event_topic
from tests.gateway.fed import feeds, held, options, states, turn
from tests.running import Running, StartGateway, StartWorker, free_port, until

pytestmark = pytest.mark.usefixtures("quick_looks")


async def chats(gateway: Running, hold: Callable[[], bool]) -> None:
    """Chats until it holds: what a publisher says before it is connected is lost."""
    for number in range(40):
        if not hold():
            await gateway.chat(turn(number))
            await asyncio.sleep(0.05)
    await until(hold)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("topic", ["", "mine"])
async def test_a_topic_that_one_worker_tells(
    engine: str,
    topic: str,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It needs no flag, and may be empty; who publishes elsewhere does not count."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    connects = {"kv_events_connect": endpoint, "kv_events_topic": topic}
    worker = await start_worker(options(engine, **connects))
    binds = await start_worker(options(engine, kv_events_topic=topic))
    gateway = await start_gateway(worker, binds, kv_events_bind=endpoint)
    await chats(gateway, lambda: all(held(gateway, w) >= 8 for w in (worker, binds)))
    assert states(gateway, worker) == states(gateway, binds) == ["live"]
    assert "no worker's" not in caplog.text


async def test_a_topic_that_two_workers_tell(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is neither's; one line names both and the flag."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    connects = {"kv_events_connect": endpoint, "kv_events_topic": ""}
    workers = [await start_worker(options(**connects)) for _ in range(2)]
    gateway = await start_gateway(*workers, kv_events_bind=endpoint)
    await chats(gateway, lambda: "told by several" in caplog.text)
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if "told by several" in record.getMessage()
    ]
    assert "--kv-events-topic" in line
    assert all(worker.url in line for worker in workers)
    assert [held(gateway, worker) for worker in workers] == [0, 0]


async def test_the_cause_where_two_workers_tell_one(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Their feeds name that, not an endpoint or a topic that would be wrong."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    connects = {"kv_events_connect": endpoint, "kv_events_topic": ""}
    workers = [await start_worker(options(**connects)) for _ in range(2)]
    gateway = await start_gateway(*workers, kv_events_bind=endpoint)
    every = [feeds(gateway, worker)[0] for worker in workers]
    await until(lambda: all("told by several" in feed.likely_cause for feed in every))
    for worker, feed in zip(workers, every, strict=True):
        assert "nothing comes" not in feed.likely_cause
        known = gateway.gateway.pool.get(worker.url)
        assert known is not None
        assert for_feed(known, feed, None).startswith("a topic of its own for each")


async def test_an_empty_topic_that_is_declared(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """As the command line has it: `URL=`."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    worker = await start_worker(options(kv_events_connect=endpoint, kv_events_topic=""))
    declared = (event_topic(f"{worker.url}="),)
    gateway = await start_gateway(
        worker, kv_events_bind=endpoint, kv_events_topic=declared
    )
    await chats(gateway, lambda: held(gateway, worker) >= 8)
