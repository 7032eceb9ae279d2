"""Where orphans may stand, as requests tell: kept until all their events are there."""

from collections import deque
from collections.abc import Callable, Iterator

AFTER_S = 2.0
"""An event of a request that comes so long after its end is not waited for."""
LIMIT = 256


class Places:
    """The latest, at most `LIMIT`; each as the arguments of `Adoption.place`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[tuple[float, tuple[int, int, int]]] = deque(maxlen=LIMIT)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, parent: int, block_hash: int, since: int) -> None:
        """One that a request that has just ended tells of."""
        due = self._clock() + AFTER_S
        self._waiting.append((due, (parent, block_hash, since)))

    def due(self) -> Iterator[tuple[int, int, int]]:
        """Take out those that have waited for long enough."""
        while self._waiting and self._waiting[0][0] <= self._clock():
            yield self._waiting.popleft()[1]

    def clear(self) -> None:
        """What they tell of is not there any more."""
        self._waiting.clear()
