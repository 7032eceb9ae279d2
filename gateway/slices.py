"""Work on the event loop in slices short enough that no request waits for it."""

import asyncio
import time

from kvindex.feed import Feed

SLICE_S = 0.001
BLOCKS = 50
"""Blocks of events applied between two looks at the clock: a fraction of a slice."""


async def work_off(feed: Feed) -> None:
    """Let what a feed was given change the index."""
    end = time.monotonic() + SLICE_S
    while feed.work(BLOCKS):
        if time.monotonic() >= end:
            await asyncio.sleep(0)
            end = time.monotonic() + SLICE_S
