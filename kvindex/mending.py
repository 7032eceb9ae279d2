"""When to ask for all batches anew: a replay failed, and a later one may do better.

What it would have brought cannot be put in behind what came since. So all there is is
asked for, from batch 0 on, and what is held is built anew of it. Where the publisher
has batch 0 no more, nothing is to be had that way.

Not here: the replay itself (`following.py`).
"""

from collections.abc import Callable

TRIES = 6
"""Each after twice the time of the one before."""


class Mending:
    """The next try, if one is worth it."""

    def __init__(self, clock: Callable[[], float], pause_s: float) -> None:
        """The first try comes `pause_s` after batches were missed."""
        self._clock = clock
        self._pause_s = pause_s
        self._due_at: float | None = None
        self._tries = 0

    def missed(self) -> None:
        """Batches are missing that the publisher may still have."""
        if self._due_at is None and self._tries < TRIES:
            self._due_at = self._clock() + self._pause_s * 2.0**self._tries

    @property
    def due(self) -> bool:
        """Is it time to try?"""
        return self._due_at is not None and self._clock() >= self._due_at

    def begin(self) -> None:
        """A try begins."""
        self._due_at = None
        self._tries += 1

    def hopeless(self) -> None:
        """The publisher has not all batches any more."""
        self._due_at, self._tries = None, TRIES

    def over(self) -> None:
        """Nothing is missing."""
        self._due_at, self._tries = None, 0
