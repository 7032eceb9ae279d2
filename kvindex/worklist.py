"""What is to be worked off in its order: at once, or in slices by the caller."""

from collections import deque

from kvindex.intake import Work

WAITING = 1_024
"""Pieces of work that may wait; beyond, all are done at once."""
_ALL = 1 << 62


class Worklist:
    """Work in the order it came. With `sliced`, the caller calls `work`."""

    def __init__(self) -> None:
        self.sliced = False
        self._todo: deque[Work] = deque()
        self._working = False

    def do(self, work: Work) -> None:
        """Do this after what came before it."""
        self._todo.append(work)
        if not self.sliced or len(self._todo) > WAITING:
            self.work(_ALL)

    def work(self, budget: int) -> bool:
        """Do work on about `budget` blocks; True while some is left."""
        if self._working:  # called back from within
            return True
        self._working = True
        try:
            while self._todo and budget > 0:
                blocks = next(self._todo[0], None)
                if blocks is None:
                    self._todo.popleft()
                budget -= blocks or 1
        finally:
            self._working = False
        return bool(self._todo)

    def clear(self) -> None:
        """What is left is not to be done."""
        self._todo.clear()
