"""Blocks of requests sent to one owner: a guess at its cache.

The stand-in until events speak, or instead of them. An LRU in which a request's blocks
always count from block 0 and the deepest go first, as engines free them.

Theory of operation. A request is noted as one run, the sequence of its block hashes;
each block points to the last run that touched it. Runs wait in line; the oldest gives
up its deepest blocks first, unless a later run has touched them. A run that has none
left leaves the line at once, wherever it is. How far a prompt follows a run is found by
bisection, for hashes are chained.

Not here: whether the guess counts (`knowledge.py`).
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

from kvindex.waste import Waste

STRIKES = 2
"""A request that finds less than guessed has itself just filled the gap: the guess is
right again. After two in a row without a confirmation the worker does not keep them."""

_OVERLAP = 4
_FREED = 1_024
"""Blocks that were forgotten at once and are freed with each request, beside as many as
it has: a million of them take tens of milliseconds."""


class _Run:
    """One request's blocks; those before `end` are still in the line.

    `sent` is how many the request had; of what has left the line not all is kept.
    """

    __slots__ = ("end", "hashes", "known", "sent", "spoken_at")

    def __init__(self, hashes: Sequence[int], known: int) -> None:
        self.hashes = hashes
        self.sent = len(hashes)
        self.known = known
        """Leading blocks that were noted before it."""
        self.end = len(hashes)
        self.spoken_at = math.inf

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


_Line = OrderedDict[_Run, None]
"""Runs in their order, of which any may leave."""


class History:
    """The last `capacity_blocks` blocks sent to one owner."""

    def __init__(self, *, capacity_blocks: int, clock: Callable[[], float]) -> None:
        self.capacity_blocks = capacity_blocks
        self._clock = clock
        self._runs: _Line = OrderedDict()
        self._run_of: dict[int, _Run] = {}
        self._strikes: dict[int, int] = {}
        self._in_line = 0
        self._old_runs: list[_Line] = []
        self._waste = Waste()

    def __len__(self) -> int:
        """Blocks noted."""
        return len(self._run_of)

    def sent(self, hashes: Sequence[int]) -> None:
        """A request with these blocks, from block 0 on, is sent to the owner now.

        `hashes` is kept; do not change it afterwards.
        """
        self._free(len(hashes) + _FREED)
        run = _Run(hashes[: self.capacity_blocks], self.held(hashes, live=False))
        if not run.end:
            return
        for block_hash in run.hashes:
            self._run_of[block_hash] = run
        self._runs[run] = None
        self._in_line += run.end
        self._evict()

    def withdraw(self, hashes: Sequence[int]) -> None:
        """The last request with these blocks never came to the owner's cache.

        Forgets the blocks that it alone noted; nothing where a later request has
        touched its last block.
        """
        run = self._run_of.get(hashes[-1]) if hashes else None
        if run is None or run.sent != len(hashes) or run.known >= run.end:
            return
        self._cut(run, run.known)

    def gone(self, block_hash: int) -> None:
        """The owner says it no longer holds this block: what is behind it goes too."""
        run = self._run_of.get(block_hash)
        if run is not None:
            # Engines free the deepest first, so it is near the end.
            backwards = range(run.end - 1, -1, -1)
            self._cut(run, next(p for p in backwards if run.hashes[p] == block_hash))

    def _cut(self, run: _Run, keep: int) -> None:
        """Forget a run's blocks from `keep` on, but those a later run has touched."""
        for block_hash in run.hashes[keep : run.end]:
            if self._run_of.get(block_hash) is run:
                del self._run_of[block_hash]
                self._strikes.pop(block_hash, None)
        self._in_line -= run.end - keep
        run.shorten(keep)
        if not keep:
            del self._runs[run]

    def _evict(self) -> None:
        """Back to the bound, of blocks and of the line (many runs share blocks)."""
        while (
            len(self._run_of) > self.capacity_blocks
            or self._in_line > _OVERLAP * self.capacity_blocks
        ):
            oldest = next(iter(self._runs))
            self._cut(oldest, oldest.end - 1)

    def spoken_for(self, hashes: Sequence[int], after_s: float) -> None:
        """Events tell of this request's blocks from `after_s` seconds from now on.

        Nothing where a later, longer request has touched its last block: its own blocks
        are then that request's as well, and wait for it.
        """
        run = self._run_of.get(hashes[-1]) if hashes else None
        if run is not None and run.sent == len(hashes):
            run.spoken_at = min(run.spoken_at, self._clock() + after_s)

    def held(self, hashes: Sequence[int], *, live: bool, start: int = 0) -> int:
        """Leading blocks taken as held, given that the first `start` are.

        `live`: only blocks that events cannot have told of yet.
        """
        now = self._clock()
        blocks = start
        while blocks < len(hashes):
            run = self._run_of.get(hashes[blocks])
            if run is None or (live and run.spoken_at <= now):
                break
            blocks = max(run.follows(hashes, blocks), blocks + 1)
        if self._strikes:
            blocks = self._to_first_struck(hashes, start, blocks)
        return blocks

    def _to_first_struck(self, hashes: Sequence[int], start: int, blocks: int) -> int:
        for position in range(start, blocks):
            if self._strikes.get(hashes[position], 0) >= STRIKES:
                return position
        return blocks

    def delivered(
        self, hashes: Sequence[int], delivered_blocks: int, guessed_blocks: int
    ) -> None:
        """The worker found `delivered_blocks` of these cached, we guessed so many.

        What it found is confirmed; what it lacked of the guess is contradicted, and
        stops to count after `STRIKES` contradictions without a confirmation.
        """
        if self._strikes:
            for block_hash in hashes[:delivered_blocks]:
                self._strikes.pop(block_hash, None)
        for block_hash in hashes[delivered_blocks:guessed_blocks]:
            if block_hash in self._run_of:
                self._strikes[block_hash] = self._strikes.get(block_hash, 0) + 1

    def clear(self) -> None:
        """The owner's cache is empty; memory is given back as requests are sent."""
        if self._runs:
            self._old_runs.append(self._runs)
        self._waste.add(self._run_of, self._strikes)
        self._runs, self._run_of, self._strikes = OrderedDict(), {}, {}
        self._in_line = 0

    def _free(self, budget: int) -> None:
        """Free about so many blocks of what was forgotten."""
        while self._old_runs and budget > 0:
            runs = self._old_runs[-1]
            run, _ = runs.popitem()
            budget -= len(run.hashes)
            if not runs:
                self._old_runs.pop()
        self._waste.free(max(0, budget))
