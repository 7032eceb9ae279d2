"""Workers that come late, restart, move, or break their event stream."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from gateway.models import Renderers
from gateway.workers import contact, monitor
from gateway.workers.contact import ContactFailed, WorkerFacts
from router.worker import WorkerSpec, WorkerState
from simworker.server import SimWorker
from tests.running import (
    MODEL,
    SIM,
    WITH_EVENTS,
    Running,
    StartGateway,
    StartWorker,
    until,
    until_followed,
)

TEXT = "Which harbour is the oldest that is still in use, and who says so? " * 12
TURN = [{"role": "user", "content": TEXT}]


pytestmark = pytest.mark.usefixtures("quick_looks")


def port_of(worker: SimWorker) -> int:
    """The port of a worker's HTTP server."""
    return int(worker.url.rpartition(":")[2])


async def test_hundreds_do_not_ask_at_once(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that never answered a few are asked side by side; each has its turn."""
    monkeypatch.setattr(monitor, "AT_ONCE", 4)
    asked: set[str] = set()
    now, most = 0, 0

    async def ask(session: object, spec: WorkerSpec, *words: object) -> WorkerFacts:
        nonlocal now, most
        now += 1
        most = max(most, now)
        asked.add(spec.url)
        await asyncio.sleep(0.01)
        now -= 1
        raise ContactFailed("not yet")

    monkeypatch.setattr(contact, "ask", ask)
    urls = [f"http://127.0.0.1:{number + 1}" for number in range(40)]
    await start_gateway(*urls)
    await until(lambda: asked == set(urls))
    assert most == 4


async def test_who_comes_is_asked_at_once(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not who was there from the start, and has just been asked."""
    monkeypatch.setattr(monitor, "FIRST_RETRY_S", 30.0)
    monkeypatch.setattr(monitor, "RETRY_LIMIT_S", 30.0)
    asked = list[str]()

    async def ask(session: object, spec: WorkerSpec, *words: object) -> WorkerFacts:
        asked.append(spec.url)
        raise ContactFailed("not yet")

    monkeypatch.setattr(contact, "ask", ask)
    first, second = "http://127.0.0.1:1", "http://127.0.0.1:2"
    gateway = await start_gateway(first)
    await asyncio.sleep(0.2)
    assert asked == [first]
    gateway.gateway.fleet.add(WorkerSpec(url=second))
    await until(lambda: second in asked)
    await asyncio.sleep(0.2)
    assert asked == [first, second]


def held(gateway: Running, worker: SimWorker) -> int:
    """The blocks that the index has for a worker."""
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    owner = known.knowledge[0].feed.owner
    return owner.blocks if owner else 0


async def test_a_worker_may_start_after_the_gateway(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """It is found, followed and used once it is there."""
    worker = await start_worker(WITH_EVENTS)
    options = msgspec.structs.replace(WITH_EVENTS, port=port_of(worker))
    await worker.stop()
    gateway = await start_gateway(worker.url)
    await gateway.get("/ready", 503)
    late = await start_worker(options)
    await until(lambda: gateway.gateway.admin.ready())
    await until_followed(*gateway.gateway.pool.workers)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(late)
    answer = await gateway.chat(TURN)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered == answer.cached > 0


async def test_workers_that_come_at_a_time_wait_for_their_model(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is ready while the model of both is loaded, on the word of one of them."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*(f"http://127.0.0.1:{n}" for n in (1, 2)))
    running = gateway.gateway
    renderers, pool = running.renderers, running.pool
    go_on, asked = threading.Event(), list[int]()

    def learn(models: object) -> None:
        asked.append(1)
        go_on.wait(5)

    monkeypatch.setattr(Renderers, "knows", lambda *_: bool(asked))
    monkeypatch.setattr(renderers, "learn", learn)
    for worker in workers:
        await gateway.post("/gateway/workers", {"url": worker.url}, 201)
    await until(lambda: bool(asked))
    await asyncio.sleep(0.3)
    last = pool.workers[-2:]
    assert [worker.state for worker in last] == [WorkerState.joining] * 2
    go_on.set()
    await until(lambda: all(worker.state is WorkerState.ready for worker in last))
    assert asked == [1]


@pytest.mark.parametrize("same_event_port", [True, False])
async def test_a_restarted_worker_has_an_empty_cache(
    start_worker: StartWorker, start_gateway: StartGateway, same_event_port: bool
) -> None:
    """Nothing of the old cache is predicted; the new feed is followed where it is."""
    old = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(old)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(old)
    assert held(gateway, old) > 0
    assert old.kv_endpoint is not None
    event_port = int(old.kv_endpoint.rpartition(":")[2]) if same_event_port else 0
    await old.stop()
    await until(lambda: _feed_states(gateway) == ["degraded"])
    new = await start_worker(
        msgspec.structs.replace(
            WITH_EVENTS, port=port_of(old), kv_events_port=event_port
        )
    )
    await until(lambda: _restarts(gateway) == 1)
    assert held(gateway, new) == 0
    await until_followed(*gateway.gateway.pool.workers)
    explained = await gateway.post(
        "/gateway/explain", {"model": MODEL, "messages": TURN}
    )
    assert explained["workers"][0]["held_tokens"] == 0
    assert explained["workers"][0]["history_tokens"] == 0
    assert (await gateway.chat(TURN)).cached == 0
    await gateway.until_events_arrive(new)
    assert (await gateway.chat(TURN)).cached > 0
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0
    assert _feed_states(gateway) == ["live"]
    await asyncio.sleep(0.5)  # several looks: the restart is noticed once
    assert await gateway.metric("worker_restarts_total") == 1


async def test_a_restart_after_the_first_look(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One look is enough to know another process by its start, before any event."""
    monkeypatch.setattr(monitor, "REFRESH_S", 60.0)
    old = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(old)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(old)
    await old.stop()
    await until(lambda: _feed_states(gateway) == ["degraded"])
    new = await start_worker(
        msgspec.structs.replace(WITH_EVENTS, port=port_of(old), kv_events_port=0)
    )
    await until(lambda: _restarts(gateway) == 1)
    assert held(gateway, new) == 0
    assert _feed_states(gateway) == ["live"]


def _feed_states(gateway: Running) -> list[str]:
    workers = gateway.gateway.pool.workers
    return [known.feed.state for w in workers for known in w.knowledge.values()]


def _restarts(gateway: Running) -> int:
    (worker,) = gateway.gateway.pool.workers
    return worker.knowledge[0].feed.counters.restarts


async def test_another_model_at_the_same_address(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Blocks of the new model are indexed under its name."""
    old = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(old)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(old)
    await old.stop()
    new = await start_worker(
        msgspec.structs.replace(
            WITH_EVENTS, port=port_of(old), served_model_name=("newer",)
        )
    )
    (worker,) = gateway.gateway.pool.workers
    await until(lambda: worker.models == {"newer"})
    await until_followed(*gateway.gateway.pool.workers)
    for _ in range(2):
        await gateway.chat(TURN, model="newer")
        await gateway.until_events_arrive(new)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0


async def test_a_worker_that_now_sends_events(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """From estimated to live when the worker comes back with events on."""
    old = await start_worker(SIM)
    gateway = await start_gateway(old)
    assert (await gateway.feed())["state"] == "estimated"
    await old.stop()
    await start_worker(msgspec.structs.replace(WITH_EVENTS, port=port_of(old)))
    await until(lambda: _feed_states(gateway) == ["live"])


async def test_a_worker_that_fails_to_tell_keeps_what_it_told(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A 500 of /kv_event_sources or /metrics does not end what is known."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(worker)

    def broken(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(worker.publisher, "listing", broken)
    before = gateway.gateway.monitor.facts[worker.url]
    await until(lambda: gateway.gateway.monitor.facts[worker.url] is not before)
    assert held(gateway, worker) > 0
    assert (await gateway.feed())["state"] == "live"


async def test_a_fault_of_ours_is_logged_and_watching_goes_on(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug in the background costs neither the program nor the feeds for ever."""
    monkeypatch.setattr("gateway.background.AFTER_FAULT_S", 0.05)
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    real = gateway.gateway.pool.listed
    faults = 1

    def listed(*args: Any) -> None:
        nonlocal faults
        faults -= 1
        if faults == 0:
            raise KeyError("a bug")
        real(*args)

    monkeypatch.setattr(gateway.gateway.pool, "listed", listed)
    await until(lambda: faults < -1)
    assert await gateway.metric("internal_errors_total", where="background") == 1
    await until_followed(*gateway.gateway.pool.workers)
    await gateway.chat(TURN)
    await gateway.until_events_arrive(worker)
    await until(lambda: _feed_states(gateway) == ["live"])
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    assert known.state is WorkerState.ready
