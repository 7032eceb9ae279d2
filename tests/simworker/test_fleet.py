"""Processes of the demo: awaited, and never left behind."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from simworker.fleet import Fleet, StartFailed
from simworker.model import demo_model_dir

DEAD = ("serve", "--workers", "127.0.0.1:1", "--host", "127.0.0.1", "--port", "0")


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """A fleet that is stopped after the test."""
    fleet = Fleet()
    yield fleet
    await fleet.stop()


async def test_start_and_stop(fleet: Fleet) -> None:
    """The URL answers once it is known; after `stop` there is no process and no log."""
    (url,) = await fleet.start_all({"gateway": DEAD})
    async with aiohttp.ClientSession() as client:
        async with client.get(url + "/health") as response:
            assert response.status == 200
        (process,) = fleet._processes
        logs = str(fleet._logs)
        assert os.listdir(logs) == ["gateway.log"]
        await fleet.stop()
        assert process.returncode == 0
        assert not os.path.lexists(logs)  # noqa: ASYNC240
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(url + "/health")


async def test_what_cannot_start(fleet: Fleet) -> None:
    """The last words of the first that failed; those that did start are ended."""
    starts = {"bad": ("serve",), "good": DEAD}
    with pytest.raises(StartFailed, match=r"bad: kv-gateway: --workers .* is missing"):
        await fleet.start_all(starts)
    pids = [process.pid for process in fleet._processes]
    await fleet.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_what_never_gets_ready(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that says nothing is given up."""
    monkeypatch.setattr("simworker.fleet.START_S", 0.01)
    with pytest.raises(StartFailed, match="slow: did not start"):
        await fleet.start("slow", DEAD)


async def test_what_will_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ignores SIGTERM is killed."""
    monkeypatch.setattr("simworker.fleet.STOP_S", 0.05)
    fleet = Fleet()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.1; done",
        stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    await process.stdout.readline()
    fleet._processes.append(process)
    await fleet.stop()
    assert process.returncode == -9


def test_the_demo_has_its_model(tmp_path: Path) -> None:
    """The model that the fleet's workers are given is a directory with a tokenizer."""
    assert (demo_model_dir(tmp_path) / "tokenizer.json").is_file()
