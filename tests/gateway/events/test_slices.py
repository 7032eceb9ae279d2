"""Slices: however many feeds are flooded, the loop turns; each has its turn."""

import asyncio
import time
from typing import Any

from gateway.events.slices import SLICE_S, Slices

FEEDS = 20
WORK_S = 0.0002


class Flooded:
    """A feed with so many steps of work left."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def work(self, budget: int) -> bool:
        """One step."""
        if self.left:
            time.sleep(WORK_S)
            self.left -= 1
        return self.left > 0


async def test_one_slice_a_turn_of_the_loop() -> None:
    """Twenty flooded feeds: between two turns of the loop about one slice passes."""
    slices = Slices()
    feeds: list[Any] = [Flooded(100) for _ in range(FEEDS)]
    tasks = {asyncio.create_task(slices.work_off(feed)) for feed in feeds}
    done: list[int] = []
    while any(feed.left for feed in feeds):
        begun = sum(feed.left for feed in feeds)
        await asyncio.sleep(0)
        done.append(begun - sum(feed.left for feed in feeds))
    await asyncio.wait(tasks)
    assert max(done) <= SLICE_S / WORK_S + 1
    assert all(task.done() for task in tasks)


async def test_each_has_its_turn() -> None:
    """A feed with little to do need not wait for the end of one with a lot."""
    slices = Slices()
    much: Any = Flooded(500)
    little: Any = Flooded(2)
    long = asyncio.create_task(slices.work_off(much))
    await asyncio.sleep(0)
    await slices.work_off(little)
    assert little.left == 0
    assert much.left > 400
    await long
    assert much.left == 0


async def test_one_that_is_cancelled_gives_its_turn_back() -> None:
    """As when a worker is removed while its events are worked off."""
    slices = Slices()
    much: Any = Flooded(10_000)
    long = asyncio.create_task(slices.work_off(much))
    await asyncio.sleep(0.01)
    long.cancel()
    await asyncio.wait({long})
    async with asyncio.timeout(1), slices.turn() as end:
        assert end > time.monotonic() - SLICE_S
