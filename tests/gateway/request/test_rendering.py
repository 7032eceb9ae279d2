"""Renderings in threads: bounded, in time, and never in the way."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from gateway.metrics.registry import Metrics
from gateway.request.rendering import (
    FAILED,
    FULL,
    LATE,
    TOO_LARGE,
    NotRendered,
    RenderPool,
)
from render import Unrenderable
from tests.collected import Raising, uncollected
from tests.running import until


@pytest.fixture(params=[30.0])
def pool(request: pytest.FixtureRequest) -> Iterator[RenderPool]:
    """One thread, two places, 100 bytes; the deadline is the parameter."""
    pool = RenderPool(
        threads=1, queue=2, deadline=request.param, max_bytes=100, metrics=Metrics()
    )
    yield pool
    pool.close()


async def reason(pool: RenderPool, work: Any, body: bytes = b"{}") -> str:
    """Why it was not rendered."""
    with pytest.raises(NotRendered) as error:
        await pool.run(lambda: work(body), len(body))
    return error.value.reason


async def test_results_come_from_another_thread(pool: RenderPool) -> None:
    """The result is handed on; the loop's thread did not make it."""
    assert await pool.run(threading.get_ident, 1) != threading.get_ident()
    assert pool.outstanding == 0


@pytest.mark.parametrize("pool", [0.05], indirect=True)
async def test_late_work_goes_on_and_counts(pool: RenderPool) -> None:
    """After the deadline the request goes on; its thread is busy until it is done."""
    running, begun, go_on = threading.Event(), threading.Event(), threading.Event()

    def work(body: bytes) -> None:
        running.set()
        go_on.wait(30)

    while not running.is_set():  # on a busy machine its thread may be late, too
        assert await reason(pool, work) == LATE
    assert pool.outstanding == 1
    # The second waits in the queue until its deadline, and is then not begun at all.
    assert await reason(pool, lambda body: begun.set()) == LATE
    assert pool.outstanding == 1
    go_on.set()
    await until(lambda: pool.outstanding == 0)
    assert not begun.is_set()


async def test_more_than_the_queue_holds(pool: RenderPool) -> None:
    """The third of three is refused at once."""
    release = threading.Event()
    wait = [pool.run(lambda: release.wait(5), 2) for _ in range(2)]
    waiting = [asyncio.create_task(work) for work in wait]
    await asyncio.sleep(0)
    assert await reason(pool, lambda body: None) == FULL
    release.set()
    await asyncio.gather(*waiting)
    assert await pool.run(lambda: "fine", 2) == "fine"


async def test_too_large(pool: RenderPool) -> None:
    """Above the limit nothing is begun."""
    assert await reason(pool, lambda body: None, b"x" * 101) == TOO_LARGE


async def test_reasons_of_the_renderer(pool: RenderPool) -> None:
    """What the renderer says of a body is the reason."""

    def refuse(body: bytes) -> None:
        raise Unrenderable("media", "an image")

    assert await reason(pool, refuse) == "media"


async def test_an_error_lets_go_of_the_body(pool: RenderPool) -> None:
    """Whoever waited for it is in its traceback, and must not have it as well."""
    raising = Raising()

    def refuse(body: bytes) -> None:
        raising.error(Unrenderable("media", "an image"))

    with uncollected():
        with contextlib.suppress(NotRendered):
            await pool.run(partial(refuse, b"{}"), 2)
        await asyncio.sleep(0.05)  # its thread's part of it ends
        assert not raising.left


async def test_faults(pool: RenderPool) -> None:
    """A fault of ours is a reason, too."""

    def fail(body: bytes) -> None:
        raise KeyError("x")

    assert await reason(pool, fail) == FAILED


async def test_a_client_that_leaves(pool: RenderPool) -> None:
    """Work that has not begun is taken out of the queue."""
    release = threading.Event()
    begun = threading.Event()
    first = asyncio.create_task(pool.run(lambda: release.wait(5), 2))
    second = asyncio.create_task(pool.run(begun.set, 2))
    await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.wait({second})
    assert pool.outstanding == 1
    release.set()
    await first
    assert not begun.is_set()
