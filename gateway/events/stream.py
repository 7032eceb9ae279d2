"""The batches of one publisher on their way to a feed, and the replays it wants.

A feed says when batches are missing. Then the publisher is asked for them, if it can
be; the feed keeps live batches meanwhile. Not here: the sockets of live batches.
"""

import asyncio

import zmq.asyncio

from gateway.events.replay import replay
from gateway.events.slices import Slices
from kvindex.feed import Feed


class Stream:
    """One publisher's batches."""

    def __init__(
        self,
        feed: Feed,
        context: zmq.asyncio.Context,
        slices: Slices,
        replay_endpoint: str | None,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Replays are among `tasks`; None: the publisher cannot be asked."""
        self.feed = feed
        self._context = context
        self._slices = slices
        self._replay_endpoint = replay_endpoint
        self._tasks = tasks
        self._asking = False
        feed.can_replay = replay_endpoint is not None

    async def work(self) -> None:
        """Let what the feed was given change the index, ask for what it misses."""
        await self._slices.work_off(self.feed)
        endpoint, wanted = self._replay_endpoint, self.feed.replay_from is not None
        if wanted and endpoint is not None and not self._asking:
            self._asking = True
            self._tasks.create_task(self._ask(endpoint))

    async def _ask(self, endpoint: str) -> None:
        try:
            while (start := self.feed.replay_from) is not None:
                await replay(self._context, endpoint, start, self.feed, self._slices)
        finally:
            self._asking = False
