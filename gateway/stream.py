"""The batches of one feed in order: live ones wait while missed ones are replayed.

Where a live batch shows that others were missed, or a connection was made anew, the
publisher is asked for those, if it can be asked. Meanwhile live batches queue here.
"""

import asyncio
import time
from collections import deque

from gateway.replay import Replays
from kvindex.feed import Feed

SLICE_S = 0.002
QUEUE = 10_000
"""Batches that wait for a replay; more are dropped, which shows as a gap."""


class Stream:
    """Hands the batches of one publisher to its feed."""

    def __init__(self, feed: Feed, replays: Replays, tasks: asyncio.TaskGroup) -> None:
        """A replay is one of `tasks`."""
        self.feed = feed
        self._replays = replays
        self._tasks = tasks
        self._queue: deque[tuple[int, bytes]] = deque()
        self._replaying = False

    def take(self, sequence: int, payload: bytes) -> None:
        """A live batch."""
        if not self._replaying and self._replays.wanted(sequence):
            self.catch_up()
        if not self._replaying:
            self.feed.receive(sequence, payload)
        elif len(self._queue) < QUEUE:
            self._queue.append((sequence, payload))

    def catch_up(self) -> None:
        """Ask for what was missed, if the publisher can be asked now."""
        if not self._replaying and self._replays.may_ask():
            self._replaying = True
            self._tasks.create_task(self._replay())

    async def _replay(self) -> None:
        try:
            await self._replays.run()
            await self._let_in()
        finally:
            self._replaying = False

    async def _let_in(self) -> None:
        """The batches that waited."""
        end = time.monotonic() + SLICE_S
        while self._queue:
            self.feed.receive(*self._queue.popleft())
            if time.monotonic() > end:
                await asyncio.sleep(0)
                end = time.monotonic() + SLICE_S
