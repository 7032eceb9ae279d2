"""Requests as runs of blocks, and the line in which they wait.

Not here: which run a block is of, and what leaves the line (`history.py`).
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

PART = 64
"""Blocks of a run that are looked through for one."""


class Run:
    """One request's blocks; those before `end` are still in the line.

    `sent` is how many the request had; of what has left the line not all is kept.
    """

    __slots__ = ("after", "before", "end", "hashes", "known", "sent", "spoken_at")

    def __init__(self, hashes: Sequence[int], known: int) -> None:
        self.hashes = hashes
        self.sent = len(hashes)
        self.known = known
        """Leading blocks that were noted before it."""
        self.end = len(hashes)
        self.spoken_at = math.inf
        self.before: Run | None = None
        self.after: Run | None = None

    def parts(self) -> Iterator["Part"]:
        """For each block the part of the run that it is in."""
        starts = range(0, len(self.hashes), PART)
        return chain.from_iterable(repeat(Part(self, start), PART) for start in starts)

    def follows(self, hashes: Sequence[int], start: int) -> int:
        """How many leading blocks of `hashes` are this run's; at least `start`."""
        low, high = start, min(self.end, len(hashes))
        while low < high:
            middle = (low + high + 1) >> 1
            if self.hashes[middle - 1] == hashes[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low

    def shorten(self, end: int) -> None:
        """Only those before `end` are left; the rest is freed when it is the half."""
        self.end = end
        if 2 * end <= len(self.hashes):
            self.hashes = self.hashes[:end]


class Part(NamedTuple):
    """`PART` blocks of a run: a block need not be looked for in all of it."""

    run: Run
    start: int

    def find(self, block_hash: int) -> int | None:
        """The position of a block that is in the line, None of one that was."""
        end = min(self.start + PART, self.run.end)
        part = self.run.hashes[self.start : end]
        return self.start + part.index(block_hash) if block_hash in part else None


class Line:
    """Runs in their order, of which any may leave: linked, so that no table grows."""

    def __init__(self) -> None:
        self.first: Run | None = None
        self._last: Run | None = None
        self._runs = 0

    def __len__(self) -> int:
        return self._runs

    def __iter__(self) -> Iterator[Run]:
        run = self.first
        while run is not None:
            yield run
            run = run.after

    def append(self, run: Run) -> None:
        """It is the last."""
        run.before = self._last
        if self._last is None:
            self.first = run
        else:
            self._last.after = run
        self._last = run
        self._runs += 1

    def remove(self, run: Run) -> None:
        """One that is in the line leaves it."""
        if run.before is None:
            self.first = run.after
        else:
            run.before.after = run.after
        if run.after is None:
            self._last = run.before
        else:
            run.after.before = run.before
        run.before = run.after = None
        self._runs -= 1
