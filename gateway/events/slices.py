"""Work on the event loop in slices short enough that no request waits for it.

All feeds of a gateway share them: however many are flooded, one slice is worked off
between two turns of the loop, and each feed has its turn.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import zmq

from kvindex.feed import Feed

SLICE_S = 0.001
BLOCKS = 50
"""Blocks of events applied between two looks at the clock: a fraction of a slice."""


class Slices:
    """Who may work on the loop now, and until when."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._end = 0.0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """One's turn, after those who asked before, until this `time.monotonic()`."""
        async with self._turn:
            if time.monotonic() >= self._end:
                await asyncio.sleep(0)
                self._end = time.monotonic() + SLICE_S
            yield self._end

    async def work_off(self, feed: Feed) -> None:
        """Let what a feed was given change the index."""
        left = True
        while left:
            async with self.turn() as end:
                while (left := feed.work(BLOCKS)) and time.monotonic() < end:
                    pass


def receive_slice(
    socket: "zmq.Socket[bytes]", take: Callable[[Sequence[bytes]], None], end: float
) -> None:
    """Hand over the messages that wait, until `end` by `time.monotonic`."""
    while time.monotonic() < end:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        take(frames)
