"""Where orphans may stand, as requests tell: kept until all their events are there."""

from collections import deque
from collections.abc import Callable, Iterator

AFTER_S = 2.0
"""An event of a request that comes so long after its end is not waited for."""
LIMIT = 256

Place = tuple[int, int, int, bool]
"""The arguments of `Adoption.place`."""


class Places:
    """The latest, at most `LIMIT`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[tuple[float, Place]] = deque(maxlen=LIMIT)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, place: Place) -> None:
        """One that a request that has just ended tells of."""
        self._waiting.append((self._clock() + AFTER_S, place))

    def due(self) -> Iterator[Place]:
        """Take out those that have waited for long enough."""
        while self._waiting and self._waiting[0][0] <= self._clock():
            yield self._waiting.popleft()[1]

    def clear(self) -> None:
        """What they tell of is not there any more."""
        self._waiting.clear()
