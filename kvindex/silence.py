"""Is a stream silent: requests must have caused events, and nothing came.

Not here: what follows from it (`feed.py`).
"""

from collections.abc import Callable

GUESSES = 3
"""So many requests that have probably caused an event count as one that has."""


class Silence:
    """When something was last heard, and since when something should have been."""

    def __init__(self, clock: Callable[[], float], after_s: float) -> None:
        self._clock = clock
        self._after_s = after_s
        self._heard_at: float | None = None
        self._awaiting_since: float | None = None
        self._guesses = 0
        self._looked = False

    def heard(self) -> None:
        """A batch came."""
        self._heard_at = self._clock()
        self.excuse()

    def excuse(self) -> None:
        """The worker's cache was emptied: what should have come may have been lost."""
        self._awaiting_since, self._guesses = None, 0
        self._looked = False

    def expect(self, sent_at: float | None, *, sure: bool = True) -> None:
        """A request that was sent at `sent_at` (None: now) has caused an event by now.

        Engines announce blocks while a request runs. Not `sure`: it probably has.
        """
        now = self._clock()
        since = now if sent_at is None else sent_at
        unheard = self._heard_at is None or self._heard_at < since
        if unheard and self._awaiting_since is None:
            self._guesses += 1
            if sure or self._guesses >= GUESSES:
                self._awaiting_since = now

    def first_look(self) -> bool:
        """Whether this is asked for the first time since something was heard."""
        first, self._looked = not self._looked, True
        return first

    @property
    def lasts(self) -> bool:
        """Has an event been awaited for too long?"""
        since = self._awaiting_since
        return since is not None and self._clock() - since >= self._after_s
