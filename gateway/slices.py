"""Work on the event loop in slices short enough that no request waits for it."""

import asyncio

from kvindex.feed import Feed

SLICE_S = 0.002
BLOCKS = 200
"""Blocks of events applied at a time: about a millisecond."""


async def work_off(feed: Feed) -> None:
    """Let what a feed was given change the index."""
    while feed.work(BLOCKS):  # noqa: ASYNC110 - work, not waiting
        await asyncio.sleep(0)
