"""A clock that stands still until the next thing that happens."""

import heapq
import itertools
import math
from collections.abc import Callable

END_S = 1e12
"""Up to here, 30,000 years, the clock tells a tenth of a millisecond."""


class TooLate(ValueError):
    """Something would happen after the end of the clock."""


class Timeline:
    """What happens when; `now` jumps from one to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        """How many things have."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        """The time, in seconds since the start."""
        return self.now

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have `what` happen at `when`, or now if that is past. Raises TooLate."""
        if not when <= END_S:  # nor is it nan
            raise TooLate(
                f"it would take more than {END_S:g} s: look at the times of arrival, "
                f"--arrival-scale, and how slow workers are"
            )
        heapq.heappush(self._due, (max(when, self.now), next(self._order), what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Have `what` happen so many seconds from now."""
        self.at(self.now + seconds, what)

    @property
    def free_s(self) -> float:
        """Seconds until the next thing; infinite if there is none."""
        return self._due[0][0] - self.now if self._due else math.inf

    def run(self) -> None:
        """Let everything happen, in the order of time, until nothing is left."""
        while self._due:
            self.now, _, what = heapq.heappop(self._due)
            self.happened += 1
            what()
