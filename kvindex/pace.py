"""How often batches may be asked for again: some replays at once, then one by one.

Whatever a publisher sends, what it is asked for stays bounded. Not here: what a replay
that is not asked for means (`following.py`).
"""

PART_S = 1.0
"""A replay from the last batch on counts for so long."""
WHOLE_S = 8.0
"""One of all that a publisher keeps, which may be thousands of batches."""
AHEAD_S = 32.0
"""So far the count may be ahead of the clock."""


class Pace:
    """By a clock in seconds."""

    def __init__(self, now: float) -> None:
        self._until = now

    def free(self, now: float) -> bool:
        """May one be asked for?"""
        return self._until - now <= AHEAD_S

    def asked(self, now: float, *, whole: bool) -> None:
        """One is."""
        self._until = max(self._until, now) + (WHOLE_S if whole else PART_S)

    def pause(self, now: float, pause_s: float) -> None:
        """None may be for so long."""
        self._until = max(self._until, now + AHEAD_S + pause_s)
