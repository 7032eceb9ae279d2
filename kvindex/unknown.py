"""Blocks that a worker found cached, and of which no event has told.

An event may just be late, so a block is looked for again some seconds after. Several in
a row that did not come mean that not all events do: a tier or a copy is not announced.
"""

from collections.abc import Callable, Sequence

from kvindex.feed import Feed
from kvindex.standing import FeedState

IN_A_ROW = 3
LATE_S = 5.0
"""No event is later."""


class Unknown:
    """Watches one complete feed, a block at a time."""

    def __init__(self, feed: Feed, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._clock = clock
        self._missing: int | None = None
        self._since = 0.0
        self._emptied = 0
        self._times = 0

    def found(self, hashes: Sequence[int], delivered_blocks: int) -> None:
        """The worker found so many leading blocks of these."""
        feed = self._feed
        if feed.state is not FeedState.LIVE or not feed.complete:
            self._missing, self._times = None, 0
            return
        emptied = feed.counters.restarts + feed.counters.cleared
        if self._missing is not None and emptied == self._emptied:
            if self._clock() - self._since < LATE_S:
                return
            self._judge(self._missing)
        known = feed.held(hashes[:delivered_blocks])
        self._missing = hashes[known] if known < delivered_blocks else None
        self._since, self._emptied = self._clock(), emptied

    def _judge(self, block_hash: int) -> None:
        feed = self._feed
        came = feed.owner and feed.index and feed.index.holds(feed.owner, block_hash)
        self._times = 0 if came else self._times + 1
        if self._times >= IN_A_ROW:
            feed.lacks("the worker finds more than is indexed")
