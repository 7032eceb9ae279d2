"""Topics of the gateway's own socket that are of no use: a log line for each."""

import logging
import time
from collections.abc import Callable

from gateway.events.topics import name_of

log = logging.getLogger(__name__)

STRANGERS = 100
"""Topics that get a line in `LIVES_S`; there may be any number."""
LIVES_S = 3_600.0
"""What comes still is said again after so long."""
SUM_S = 60.0
"""What has no line of its own is summed up this often."""


class Strangers:
    """Those that had theirs, the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at: dict[tuple[str, str], float] = {}
        self._more = 0
        self._sum_due = clock()

    def note(self, endpoint: str, topic: bytes, why: str) -> None:
        """What comes under a topic counts for nobody, and that is why."""
        told, now = (name_of(topic), why.partition(":")[0]), self._clock()
        oldest = next(iter(self._told_at), told)
        if now - self._told_at.get(oldest, now) >= LIVES_S:
            del self._told_at[oldest]
        if told in self._told_at:
            return
        if len(self._told_at) >= STRANGERS:
            self._sum_up(endpoint, now)
            return
        self._told_at[told] = now
        shown = topic[:100].decode("utf-8", "replace")
        log.warning("KV events at %s: topic %r %s", endpoint, shown, why)

    def _sum_up(self, endpoint: str, now: float) -> None:
        self._more += 1
        if now < self._sum_due:
            return
        text = "KV events at %s: %d batches under more than %d topics of no use"
        log.warning(text, endpoint, self._more, STRANGERS)
        self._more, self._sum_due = 0, now + SUM_S
