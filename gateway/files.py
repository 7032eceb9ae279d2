"""Files that are read, and read again when they change: settings, keys, certificates.

What they mean is their readers' business. A change is taken once it has stood for a
look, as a certificate and its key are seldom written in one step.
"""

import asyncio
import errno
import logging
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gateway.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_S = 1.0
READ_S = 5.0
"""So long a pipe may take to say all that it has to say."""
PIECE = 65536

T = TypeVar("T")
State = tuple[tuple[int, ...] | None, ...]


def content(path: str | Path, limit: int) -> bytes:
    """What is in a file, or comes out of a pipe, within `limit` bytes.

    Raises OSError, also where nobody says anything at a pipe's other end; ValueError
    where there is more.
    """
    place = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _all_of(place, limit)
    finally:
        os.close(place)


def _all_of(place: int, limit: int) -> bytes:
    said, end = bytearray(), time.monotonic() + READ_S
    poll = select.poll()
    poll.register(place, select.POLLIN)
    while poll.poll(max(0.0, 1000 * (end - time.monotonic()))):
        piece = os.read(place, PIECE)
        said += piece
        if len(said) > limit:
            raise ValueError(f"has more than {limit} bytes")
        if not piece:
            return bytes(said)
    raise TimeoutError(errno.ETIMEDOUT, "a pipe that nobody writes to the end")


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
