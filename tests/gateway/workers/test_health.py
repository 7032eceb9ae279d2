"""Health checks: which workers they take out, and which they never do."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from gateway.workers import health
from router.worker import WorkerState
from tests.gateway.fed import TURN, feeds, held, options, states
from tests.gateway.scripted import LISTING, state
from tests.proxy.raw import (
    CHAT,
    SSE_HEAD,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    chunk,
    event,
    json_answer,
)
from tests.running import SIM, Running, StartGateway, StartWorker, free_port, until

QUICK = {"health_interval": 0.05, "health_timeout": 0.2}
FINE = json_answer(b"")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed workers are checked again soon."""
    monkeypatch.setattr(health, "SOON_S", 0.05)


def answering_health(how: Callable[[], bytes | None]) -> Script:
    """A worker whose health is told by `how` (None: not at all), and that streams."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"GET /health"):
                answer = how()
                if answer is None:
                    await connection.closed_by_peer()
                    return
                await connection.send(answer)
            elif request.startswith(b"POST"):
                await connection.send(SSE_HEAD)
                for number in range(1000):
                    await connection.send(chunk(event(number)))
                    await asyncio.sleep(0.02)
            else:
                await connection.send(LISTING)

    return script


def returns(gateway: Running) -> int:
    """How often its worker returned."""
    return gateway.gateway.pool.workers[0].returns


@pytest.mark.parametrize("bad", [None, json_answer(b"", status=b"503 Dead")])
async def test_a_worker_that_fails_its_checks_rests_until_they_pass(
    start_gateway: StartGateway, bad: bytes | None
) -> None:
    """Without a request; its page says why."""
    now: list[bytes | None] = [FINE]
    async with RawWorker(answering_health(lambda: now[0])) as worker:
        gateway = await start_gateway(worker.url, **QUICK)
        await until(lambda: state(gateway, worker) is WorkerState.ready)
        now[0] = bad
        await until(lambda: state(gateway, worker) is WorkerState.suspect)
        page = await gateway.get("/gateway/workers")
        assert page["workers"][0]["reason"].startswith("health checks fail: ")
        now[0] = FINE
        await until(lambda: state(gateway, worker) is WorkerState.ready)
        assert returns(gateway) == 1
        assert await gateway.metric("worker_returns_total") == 1
        assert await gateway.metric("health_checks_total", result="failed") >= 3


async def test_after_a_check_that_failed_the_next_come_soon(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """So a worker that died gets no requests a few seconds later."""
    worker = await start_worker()
    gateway = await start_gateway(worker, health_interval=0.5, health_fall=30)
    await until(lambda: gateway.gateway.pool.workers[0].checks > 0)
    address = worker.url
    await worker.stop()  # at thirty intervals it would take longer than is waited
    await until(lambda: state(gateway, address) is WorkerState.suspect)


async def test_a_worker_too_busy_for_its_checks_is_not_dead(
    start_gateway: StartGateway,
) -> None:
    """Its health does not answer while its streams go on."""
    async with RawWorker(answering_health(lambda: None)) as worker:
        gateway = await start_gateway(worker.url, **QUICK, health_fall=100)
        async with RawClient(gateway.port) as client:
            await client.post(CHAT)
            await client.head()
            known = gateway.gateway.pool.workers[0]
            await until(lambda: known.pulse.beats > 0)
            before = known.checks
            await asyncio.sleep(1.0)
            assert known.checks >= min(0, before)
            assert state(gateway, worker) is WorkerState.ready


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found", b"401 No"])
async def test_a_server_that_answers_is_alive(
    start_gateway: StartGateway, status: bytes
) -> None:
    """It need not have the route."""
    answer = json_answer(b"{}", status=status)
    async with RawWorker(answering_health(lambda: answer)) as worker:
        gateway = await start_gateway(worker.url, **QUICK)
        await until(lambda: gateway.gateway.pool.workers[0].checks >= 3)
        assert state(gateway, worker) is WorkerState.ready


async def test_a_worker_that_is_started_again_is_used_again(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Whatever it was when it went; no request has to be lost for it."""
    other, worker = await start_worker(), await start_worker()
    gateway = await start_gateway(worker, other, policy="round_robin", **QUICK)
    address = worker.url
    await worker.stop()
    hello = [{"role": "user", "content": "hello"}]
    for _ in range(4):
        assert (await gateway.chat(hello)).worker == other.url
    await until(lambda: state(gateway, address) is WorkerState.suspect)
    port = int(address.rpartition(":")[2])
    await start_worker(msgspec.structs.replace(SIM, port=port))
    await until(lambda: state(gateway, address) is WorkerState.ready)
    answered = {(await gateway.chat(hello)).worker for _ in range(4)}
    assert answered == {address, other.url}


async def test_a_worker_that_dies_and_connects_to_the_gateway(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Health checks find it without a request, and its feed is in doubt."""
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    topic = "kv@127.0.0.1@m"
    worker = await start_worker(
        options(kv_events_connect=endpoint, kv_events_topic=topic)
    )
    gateway = await start_gateway(worker, kv_events_bind=endpoint, **QUICK)
    await asyncio.sleep(0.5)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) >= 8)
    url = worker.url
    await worker.stop()
    await until(lambda: states(gateway, url) == ["degraded"])
    assert feeds(gateway, url)[0].reason == "connection lost"
    known = gateway.gateway.pool.get(url)
    await until(lambda: known is not None and known.reason.startswith("health"))
