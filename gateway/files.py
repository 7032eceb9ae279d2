"""Files that are read again when they change: keys and certificates.

What they mean is their readers' business. A change is taken once it has stood for a
look, as a certificate and its key are seldom written in one step.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gateway.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_S = 1.0

T = TypeVar("T")
State = tuple[tuple[int, ...] | None, ...]


async def follow(
    paths: Sequence[Path],
    read: Callable[[], T],
    take: Callable[[T], None],
    *,
    since: State,
) -> None:
    """`read` in a thread when a file has changed, and `take` it; until cancelled.

    `since` is their state from before they were read first: what came after that, while
    a model was loaded perhaps, is a change, too.
    Where `read` raises ConfigError all stays as it is; that is logged, once for each
    problem.
    """
    taken = seen = since
    problem = ""
    while True:
        await asyncio.sleep(LOOK_S)
        before, seen = seen, await asyncio.to_thread(state, paths)
        if seen == taken or seen != before:
            continue
        taken = seen
        try:
            value = await asyncio.to_thread(read)
        except ConfigError as error:
            if str(error) != problem:
                log.error("all stays as it was: %s", error)
            problem = str(error)
        else:
            problem = ""
            take(value)


def state(paths: Sequence[Path]) -> State:
    """What changes when one of the files does."""
    return tuple(_stat(path) for path in paths)


def _stat(path: Path) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
