"""A gateway's start and end."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from gateway.app import Gateway
from gateway.errors import ConfigError
from gateway.settings.config import Config
from render import ModelNotFound, Renderer
from tests.proxy.raw import RawWorker, WorkerConnection
from tests.running import SIM, StartGateway, StartWorker, until


async def test_models_of_all_workers_are_loaded_at_the_start(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also what the second worker lists, though the first is ready by then."""
    loaded = []

    def load(source: str, **options: Any) -> Renderer:
        loaded.append(source)
        raise ModelNotFound("none here")

    names = ("one", "two", "three")
    workers = [
        await start_worker(msgspec.structs.replace(SIM, served_model_name=(name,)))
        for name in names
    ]
    monkeypatch.setattr(Renderer, "load", load)
    await start_gateway(*workers, model=())
    assert set(names) <= set(loaded)


async def test_models_that_come_later_are_not_loaded(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading would hold up the requests that are there by now; one line says so."""
    monkeypatch.setattr("gateway.workers.monitor.FIRST_RETRY_S", 0.05)
    monkeypatch.setattr("gateway.workers.monitor.RETRY_LIMIT_S", 0.1)
    first = await start_worker(SIM)
    second = await start_worker(SIM)
    port = int(second.url.rpartition(":")[2])
    await second.stop()
    gateway = await start_gateway(first, second.url, model=())
    options = {"port": port, "served_model_name": ("late",)}
    with caplog.at_level(logging.WARNING):
        late = await start_worker(msgspec.structs.replace(SIM, **options))
        await until(lambda: late.url in gateway.gateway.monitor.facts)
    lines = [r for r in caplog.records if "model late appeared" in r.getMessage()]
    assert len(lines) == 1


async def test_a_worker_that_never_answers_does_not_hold_up_the_start(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start goes on without it."""
    monkeypatch.setattr("gateway.app.FIRST_ROUND_S", 0.1)

    async def silent(connection: WorkerConnection) -> None:
        await connection.request()
        await asyncio.sleep(30)

    async with RawWorker(silent) as worker, asyncio.timeout(5):
        gateway = await start_gateway(worker.url)
        (listed,) = (await gateway.get("/gateway/workers"))["workers"]
        assert (listed["state"], listed["reason"]) == ("joining", "no answer in time")


async def test_nothing_is_left_after_stop(start_worker: StartWorker) -> None:
    """No task and no thread that works stays behind."""
    worker = await start_worker(SIM)
    before = asyncio.all_tasks()
    gateway = Gateway(Config(workers=((worker.url,),), render="never"))
    try:
        await gateway.start()
        assert len(asyncio.all_tasks()) > len(before)
    finally:
        await gateway.stop()
    await until(lambda: asyncio.all_tasks() <= before)


async def test_a_start_that_fails_leaves_nothing(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened by then is closed."""
    worker = await start_worker(SIM)
    before = asyncio.all_tasks()
    gateway = Gateway(Config(workers=((worker.url,),), render="never"))

    def fail(*args: object, **options: object) -> None:
        raise OSError("no routes")

    monkeypatch.setattr("gateway.routes.Handlers", fail)
    with pytest.raises(OSError, match="no routes"):
        await gateway.start()
    await until(lambda: asyncio.all_tasks() <= before)


def test_what_cannot_be_configured() -> None:
    """A model that is not there ends the start before anything is opened."""
    with pytest.raises(ConfigError, match="--model"):
        Gateway(Config(workers=(("http://w",),), model=((None, "/not/here"),)))
