"""A field report about a flood of events, played on a whole gateway."""

import asyncio
import itertools

import pytest

from kvindex.events import EventBatch
from kvindex.wire.vllm import encode_batch
from tests.gateway.fed import feeds, held, turn
from tests.gateway.test_broken_events import Publisher, publishing, stored, subscribed
from tests.running import SIM, Running, StartGateway, StartWorker, until

BATCHES, EVENTS = 8_000, 25


@pytest.mark.timeout(180)  # seconds of work, on whatever else runs
async def test_a_flood_of_events(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Of 200,000 events applied and lost make what was sent; requests do not wait.

    ai-dynamo/dynamo#14167
    """
    worker = await start_worker(SIM)
    async with publishing() as publisher:
        gateway = await subscribed(start_gateway, worker, publisher)
        publisher.events(0, stored(1))
        await until(lambda: held(gateway, worker) == 1)
        feed = feeds(gateway, worker)[0]

        def over() -> bool:
            publisher.events(BATCHES + 1)  # again, as the first ones may be lost, too
            return feed.last_sequence == BATCHES + 1

        async with asyncio.TaskGroup() as group:
            times: list[float] = []
            chats = group.create_task(_chat(gateway, times))
            begun = asyncio.get_running_loop().time()
            await asyncio.to_thread(_flood, publisher)
            await until(over, 150)
            taken = asyncio.get_running_loop().time() - begun
            chats.cancel()
        counters = feed.counters
        assert counters.batches + counters.missed_batches == BATCHES + 2
        assert counters.events["BlockStored"] == 1 + EVENTS * (counters.batches - 2)
        assert max(times) < taken / 2  # what waits for the flood waits for most of it


async def _chat(gateway: Running, times: list[float]) -> None:
    """One chat after the other, each new; how long each took, in seconds."""
    loop = asyncio.get_running_loop()
    for number in itertools.count():
        begun = loop.time()
        await gateway.chat(turn(number))
        times.append(loop.time() - begun)
        await asyncio.sleep(0.05)


def _flood(publisher: Publisher) -> None:
    """The same blocks again and again: made before, so that they come at once."""
    events = tuple(stored(number) for number in range(EVENTS))
    payload = encode_batch(EventBatch(timestamp=0.0, events=events, rank=0))
    for sequence in range(1, BATCHES + 1):
        publisher.payload(sequence, payload)
