"""A clock that stands still until the next thing that happens."""

import heapq
import itertools
from collections.abc import Callable


class Timeline:
    """What happens when; `now` jumps from one to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        """The time, in seconds since the start."""
        return self.now

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have `what` happen at `when`, or now if that is past."""
        heapq.heappush(self._due, (max(when, self.now), next(self._order), what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Have `what` happen so many seconds from now."""
        self.at(self.now + seconds, what)

    def run(self) -> None:
        """Let everything happen, in the order of time, until nothing is left."""
        while self._due:
            self.now, _, what = heapq.heappop(self._due)
            what()
