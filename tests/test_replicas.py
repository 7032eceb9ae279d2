"""Several gateways over one fleet: they share nothing, and lose next to nothing by it.

`python -m bench replicas` is the same with processes, for longer.
"""

import asyncio

import msgspec
import pytest

from bench._replica_traffic import Traffic, hit_rate
from simworker.workload import Shape, generate, request_count
from tests.running import MODEL, WITH_EVENTS, Running, StartGateway, StartWorker, until

WORKERS, GATEWAYS = 6, 3
SHAPE = Shape(
    products=4,
    system_sentences=(28, 40),
    turns=(3, 5),
    log_lines=(4, 8),
    max_tokens=(4, 8),
    arrival_s=2.0,
    gap_s=0.25,
)
POINTS = 0.04
"""Of so few requests; the benchmark allows half of that."""


async def _before_a_fleet(
    start_worker: StartWorker, start_gateway: StartGateway, gateways: int
) -> list[Running]:
    """So many gateways before fresh workers."""
    options = msgspec.structs.replace(WITH_EVENTS, prefill_rate=2_000.0, speed=10.0)
    workers = [await start_worker(options) for _ in range(WORKERS)]
    return [await start_gateway(*workers) for _ in range(gateways)]


@pytest.mark.timeout(180)  # a fleet's worth of work, on whatever else runs
async def test_hit_rates_and_a_kill(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Three find what one finds, also when one of them is killed on the way.

    Clients see connections that break, and nothing else.
    """
    sessions = generate(3, 18, SHAPE)
    (gateway,) = await _before_a_fleet(start_worker, start_gateway, 1)
    alone = Traffic([gateway.url], MODEL)
    await alone.hold(sessions)
    assert alone.retried == alone.refused == {}

    *others, victim = await _before_a_fleet(start_worker, start_gateway, GATEWAYS)
    traffic = Traffic([one.url for one in (*others, victim)], MODEL)
    async with asyncio.TaskGroup() as tasks:
        chats = tasks.create_task(traffic.hold(sessions))
        await asyncio.sleep(SHAPE.arrival_s / 2)
        await victim.close_port()
        await until(lambda: traffic.retried)
        traffic.gateways.remove(victim.url)
        await chats
    assert traffic.refused == {}
    assert len(traffic.samples) == request_count(sessions)
    rates = hit_rate(alone.samples), hit_rate(traffic.samples)
    assert rates[0] > 0.5
    assert rates[1] > rates[0] - POINTS
