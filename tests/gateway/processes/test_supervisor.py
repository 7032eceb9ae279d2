"""The parent, where processes do what real ones seldom do."""

import asyncio
import re

import pytest

from gateway.processes import supervisor
from gateway.processes.process import EndedEarly
from gateway.processes.supervisor import Supervisor
from gateway.settings.config import Config


class Failing:
    """A process that ends again and again, and in the end stays."""

    number = 3

    def __init__(self, *starts: BaseException | None) -> None:
        self._starts = iter(starts)
        self.lasts = asyncio.Event()
        self.turns: list[tuple[str, str]] = []

    async def ended(self) -> str:
        if self.lasts.is_set():
            await asyncio.Event().wait()
        return "SIGKILL"

    async def start(self) -> None:
        failure = next(self._starts)
        if failure is not None:
            raise failure

    async def admit(self) -> str:
        self.lasts.set()
        return "http://127.0.0.1:1"

    def turn(self, state: str, reason: str = "") -> None:
        self.turns.append((state, reason))

    def signal(self, number: int) -> None:
        pass


async def test_one_that_does_not_last_waits_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice as long each time, up to a bound; the reason is that of the last end."""
    monkeypatch.setattr(supervisor, "RETRY_S", 0.001)
    monkeypatch.setattr(supervisor, "RETRY_LIMIT_S", 0.004)
    process = Failing(*(EndedEarly("status 1") for _ in range(4)), None)
    task = asyncio.create_task(Supervisor(Config(), [], [])._keep(process))  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        await process.lasts.wait()
    task.cancel()
    await asyncio.wait({task})
    waits = [float(w) for w in re.findall(r"started in (\S+) s", caplog.text)]
    assert waits == [0.001, 0.002, 0.004, 0.004, 0.004]
    assert process.turns == [("ended", "SIGKILL"), *4 * [("ended", "status 1")]]
