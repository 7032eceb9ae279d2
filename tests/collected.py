"""What only the collector would free: for tests that want none of it."""

import asyncio
import contextlib
import gc
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No collector meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count(*kinds: type) -> int:
    """How many objects of these types there are."""
    return sum(isinstance(each, kinds) for each in gc.get_objects())


async def until_gone(before: int, *kinds: type) -> None:
    """Wait until there are no more of them than before."""
    for _ in range(500):
        if count(*kinds) <= before:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{count(*kinds) - before} are left")
