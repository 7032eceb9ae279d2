"""How far a feed can be trusted: its state, the reason, since when, and completeness.

Not here: what changes it (`feed.py`).
"""

import logging
from collections.abc import Callable, Hashable
from enum import StrEnum

log = logging.getLogger(__name__)


class FeedState(StrEnum):
    """`replaying` is for a feed that recovers missed batches."""

    ESTIMATED = "estimated"
    LIVE = "live"
    REPLAYING = "replaying"
    DEGRADED = "degraded"
    SILENT = "silent"


_BAD = (FeedState.DEGRADED, FeedState.SILENT)

NO_SOURCE = "no event source"

LINES = 20
"""Log lines about one feed in `LINES_S`, however often it changes."""
LINES_S = 60.0


class Standing:
    """State, reason and completeness of one feed; one log line per change of state."""

    def __init__(
        self,
        *,
        key: Hashable,
        clock: Callable[[], float],
        state: FeedState,
        reason: str,
        changed: Callable[[], None],
    ) -> None:
        self.state = state
        self.reason = reason
        self.complete = False
        self.since = clock()
        self._key = key
        self._clock = clock
        self._changed = changed
        self._lines, self._lines_since = 0, self.since
        if state is FeedState.ESTIMATED:
            self.log(logging.INFO, f"{state} ({reason})")

    def become(
        self, state: FeedState, reason: str, *, complete: bool | None = None
    ) -> None:
        """Take a state; `complete` None leaves completeness as it is."""
        before = self.state, self.reason, self.complete
        self.state, self.reason = state, reason
        if complete is not None:
            self.complete = complete
        if state is not before[0]:
            self.since = self._clock()
            level = logging.WARNING if state in _BAD else logging.INFO
            self.log(level, f"{state} ({reason or 'all events seen'})")
        if before != (self.state, self.reason, self.complete):
            self._changed()

    def unsourced(self, why: str) -> None:
        """Nothing is to come, and that is why; "" where there is just no source."""
        if self.state is FeedState.ESTIMATED:
            self.become(self.state, why or NO_SOURCE)

    def log(self, level: int, what: str) -> None:
        """One line about this feed, unless there were too many of late."""
        if self._clock() - self._lines_since >= LINES_S:
            self._lines, self._lines_since = 0, self._clock()
        self._lines += 1
        if self._lines <= LINES:
            log.log(level, "KV events of %s: %s", self._key, what)
        elif self._lines == LINES + 1:
            text = "KV events of %s: changes too often; no more lines for a while"
            log.warning(text, self._key)

    def incomplete(self, reason: str) -> None:
        """The worker holds blocks that the index does not know."""
        live = self.state is FeedState.LIVE
        self.become(self.state, reason if live else self.reason, complete=False)
