"""Feeds are ticked, the index is swept, the loop's lag is seen."""

import asyncio
import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import housekeeping, memory
from gateway.housekeeping import Housekeeping
from gateway.metrics.registry import Metrics
from tests.running import until


async def test_ticks_and_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Feeds and blockers each second; sweeping goes on until nothing is left."""
    monkeypatch.setattr(housekeeping, "TICK_S", 0.01)
    ticks: list[str] = []
    feeds = [SimpleNamespace(tick=lambda n=n: ticks.append(n)) for n in "ab"]
    known = {n: SimpleNamespace(feed=feed) for n, feed in enumerate(feeds)}
    left = [5]

    def sweep(budget: int) -> bool:
        left[0] = max(0, left[0] - 1)
        return left[0] > 0

    pool: Any = SimpleNamespace(workers=[SimpleNamespace(knowledge=known)])
    indexes: Any = SimpleNamespace(sweep=sweep)
    looks: list[None] = []
    blockers: Any = SimpleNamespace(look=lambda: looks.append(None))
    metrics = Metrics()
    task = asyncio.create_task(Housekeeping(pool, indexes, metrics, blockers).run())
    await until(lambda: len(ticks) >= 6)
    task.cancel()
    assert ticks[:6] == ["a", "b"] * 3
    assert left == [0]
    assert len(looks) >= 3


def test_a_sweep_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a few blocks take: the clock is looked at after each few."""
    now, swept = [0.0], [0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def slow(budget: int) -> bool:
        swept[0] += budget
        now[0] += 0.00025 * budget  # each returns memory to the system
        return True

    indexes: Any = SimpleNamespace(sweep=slow)
    assert housekeeping.sweep(indexes)
    assert now[0] <= 0.005
    assert swept[0] > 0
    indexes = SimpleNamespace(sweep=lambda budget: False)
    assert not housekeeping.sweep(indexes)


async def test_a_blocked_loop_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop held up for 60 ms shows as a lag of about that."""
    monkeypatch.setattr(housekeeping, "LAG_PERIOD_S", 0.01)
    nothing: Any = SimpleNamespace(workers=[])
    metrics = Metrics()
    house = Housekeeping(nothing, nothing, metrics, nothing)
    task = asyncio.create_task(house.watch_loop())
    await asyncio.sleep(0.03)
    time.sleep(0.06)  # noqa: ASYNC251 - this is the test
    await asyncio.sleep(0.03)
    task.cancel()
    page = (await metrics.exposition()).decode()
    bucket = 'kv_gateway_event_loop_lag_seconds_bucket{le="%s"}'
    count = {
        edge: float(page.split(bucket % edge)[1].split()[0])
        for edge in ("0.05", "+Inf")
    }
    assert count["+Inf"] > count["0.05"]


async def test_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again, in a thread; the longer that takes, the less often."""
    monkeypatch.setattr(housekeeping, "GIVE_BACK_S", 0.01)
    monkeypatch.setattr(housekeeping, "GIVE_BACK_SHARE", 1.0)
    threads: list[int] = []
    begun: list[float] = []

    def slow() -> None:
        threads.append(threading.get_ident())
        begun.append(time.monotonic())
        time.sleep(0.1)

    monkeypatch.setattr(memory, "give_back", slow)
    nothing: Any = None
    house = Housekeeping(nothing, nothing, nothing, nothing)
    task = asyncio.create_task(house.give_back())
    await until(lambda: len(threads) >= 4)
    task.cancel()
    pairs = itertools.pairwise(begun)
    assert all(after - before > 0.15 for before, after in pairs)
    assert threading.get_ident() not in threads
