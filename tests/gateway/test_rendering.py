"""Waiting for a rendering: what is late, and what only looks late."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from gateway.metrics import Metrics
from gateway.rendering import LATE, NotRendered, RenderPool

DEADLINE_S = 0.05


@pytest.fixture
def pool() -> Iterator[RenderPool]:
    pool = RenderPool(
        threads=1, queue=4, deadline=DEADLINE_S, max_bytes=100, metrics=Metrics()
    )
    yield pool
    pool.close()


async def test_a_rendering_that_is_there_counts_though_the_loop_was_late(
    pool: RenderPool,
) -> None:
    """The machine held the event loop up past the deadline; the ids are ready."""
    rendering = asyncio.create_task(pool._run(lambda: "ids", 1))
    await asyncio.sleep(0)
    time.sleep(2 * DEADLINE_S)  # noqa: ASYNC251 - a loop that is held up
    assert await rendering == "ids"


async def test_a_rendering_that_is_not_there_is_late(pool: RenderPool) -> None:
    """Routed without ids after the deadline; counted until it ends."""
    go = threading.Event()
    with pytest.raises(NotRendered) as late:
        await pool._run(go.wait, 1)
    assert late.value.reason == LATE
    assert pool.outstanding == 1
    go.set()
    await _emptied(pool)


async def test_a_rendering_that_never_began_is_late_and_dropped(
    pool: RenderPool,
) -> None:
    """One that still waits for a thread at its deadline is not done later."""
    go = threading.Event()
    done: Future[None] = Future()
    first = asyncio.create_task(pool._run(go.wait, 1))
    await asyncio.sleep(0)
    with pytest.raises(NotRendered) as late:
        await pool._run(lambda: done.set_result(None), 1)
    assert late.value.reason == LATE
    go.set()
    with pytest.raises(NotRendered):
        await first
    await _emptied(pool)
    assert not done.done()


async def _emptied(pool: RenderPool) -> None:
    async with asyncio.timeout(5):
        while pool.outstanding:  # noqa: ASYNC110 - it has no event to wait for
            await asyncio.sleep(0.001)
