"""What only the collector would free: for tests that want none of it."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import NoReturn

import pytest


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No collector meanwhile, and `count` counts only what comes from here on."""
    gc.collect()
    gc.disable()
    gc.freeze()  # there may be millions of objects, and they are gone through often
    try:
        yield
    finally:
        gc.unfreeze()
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


class Raising:
    """Errors that it raised; `left` are those that something still has."""

    def __init__(self) -> None:
        self._raised: list[weakref.ref[Exception]] = []

    def error(self, error: Exception) -> NoReturn:
        """Raise one, and have it no more."""
        self._raised.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    @property
    def left(self) -> list[Exception]:
        """At least one was raised."""
        assert self._raised
        return [error for each in self._raised if (error := each()) is not None]
