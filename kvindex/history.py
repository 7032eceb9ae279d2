"""Blocks of requests sent to one owner: a guess at its cache.

The stand-in until events speak, or instead of them. An LRU in which a request's blocks
always count from block 0 and the deepest go first, as engines free them.

Theory of operation. A request is noted as one run, the sequence of its block hashes;
each block points to the last run that touched it. Runs wait in line; the oldest gives
up its deepest blocks first, unless a later run has touched them. A run that has none
left leaves the line at once, wherever it is. How far a prompt follows a run is found by
bisection, for hashes are chained. What a run loses counts no more at once, as it is not
before its `end`; where that is much it is forgotten in slices.

Not here: whether the guess counts (`knowledge.py`).
"""

from collections.abc import Callable, Sequence

from kvindex.runs import Line, Part, Run
from kvindex.sharded import ShardedDict
from kvindex.waste import Waste

STRIKES = 2
"""A request that finds less than guessed has itself just filled the gap: the guess is
right again. After two in a row without a confirmation the worker does not keep them."""

_STRUCK = 512
"""Blocks that one contradiction is noted of."""
_ALL_STRUCK = 8_192
"""Those that are remembered: the latest."""

_OVERLAP = 4
_FREED = 1_024
"""Blocks that were forgotten at once and are freed with each request, beside as many as
it has: a million of them take tens of milliseconds."""
_AT_ONCE = 16
"""The same with each block that is gone: a step of events has hundreds."""

_Rest = tuple[Run, Sequence[int], int, int]
"""Of which of its blocks, as they were, a run has lost those from where to where."""


class History:
    """The last `capacity_blocks` blocks sent to one owner."""

    def __init__(self, *, capacity_blocks: int, clock: Callable[[], float]) -> None:
        self.capacity_blocks = capacity_blocks
        self._clock = clock
        self._old_runs: list[Line] = []
        self._waste = Waste()
        self._start()

    def _start(self) -> None:
        self._runs = Line()
        self._part_of: ShardedDict[int, Part] = ShardedDict()
        self._strikes: dict[int, int] = {}
        self._rests: list[_Rest] = []
        self._in_line = 0

    def __len__(self) -> int:
        """Blocks noted, those that are still to be forgotten included."""
        return self._part_of.entries

    def sent(self, hashes: Sequence[int]) -> None:
        """A request with these blocks, from block 0 on, is sent to the owner now.

        `hashes` is kept; do not change it afterwards.
        """
        budget = len(hashes) + _FREED
        self._free(budget)
        run = Run(hashes[: self.capacity_blocks], self.held(hashes, live=False))
        if not run.end:
            return
        run.sent = len(hashes)
        self._part_of.update(run.hashes, run.parts())
        self._runs.append(run)
        self._in_line += run.end
        self._evict(budget)

    def withdraw(self, hashes: Sequence[int]) -> None:
        """The last request with these blocks never came to the owner's cache.

        Forgets the blocks that it alone noted; nothing where a later request has
        touched its last block.
        """
        run = self._run_of(hashes)
        if run is None or run.known >= run.end:
            return
        self._cut(run, run.known)
        self._forget(_FREED)

    def _run_of(self, hashes: Sequence[int]) -> Run | None:
        """The run of a request, or what is left of it; None if there is a later one."""
        noted = self._noted(hashes, 0, live=False)
        run = self._run_at(hashes, noted - 1) if noted else None
        whole = run is not None and run.sent == len(hashes) and run.end == noted
        return run if whole else None

    def _run_at(self, hashes: Sequence[int], position: int) -> Run | None:
        """The last run that touched a block, None where it is in the line no more."""
        part = self._part_of.get(hashes[position])
        return part.run if part is not None and position < part.run.end else None

    def gone(self, block_hash: int) -> None:
        """The owner says it no longer holds this block: what is behind it goes too."""
        part = self._part_of.get(block_hash)
        if part is not None and (position := part.find(block_hash)) is not None:
            self._cut(part.run, position)
        self._forget(_AT_ONCE)

    def _cut(self, run: Run, keep: int) -> None:
        """A run loses its blocks from `keep` on."""
        self._rests.append((run, run.hashes, keep, run.end))
        self._in_line -= run.end - keep
        run.shorten(keep)
        if not keep:
            self._runs.remove(run)

    def _forget(self, budget: int) -> int:
        """Forget blocks that runs have lost, but those a later run has touched.

        What is left of `budget`.
        """
        while self._rests and budget > 0:
            run, hashes, start, end = self._rests.pop()
            middle = max(start, end - budget)
            if middle > start:
                self._rests.append((run, hashes, start, middle))
            for block_hash in self._drop(hashes[middle:end], run):
                self._strikes.pop(block_hash, None)
            budget -= end - middle
        return budget

    def _drop(self, hashes: Sequence[int], run: Run) -> Sequence[int]:
        """Those that this run touched last are noted no more; those with strikes."""
        dropped = self._part_of.drop(hashes, lambda part: part.run is run)
        return dropped if self._strikes else ()

    def _evict(self, budget: int) -> None:
        """Back to the bound, of blocks and of the line (many runs share blocks).

        By `budget` blocks at most: it may have become a lower bound.
        """
        while budget > 0 and (oldest := self._runs.first) is not None:
            over = max(
                self._part_of.entries - self.capacity_blocks,
                self._in_line - _OVERLAP * self.capacity_blocks,
            )
            if over <= 0:
                return
            blocks = min(over, oldest.end, budget)
            self._cut(oldest, oldest.end - blocks)
            self._forget(blocks)
            budget -= blocks

    def spoken_for(self, hashes: Sequence[int], after_s: float) -> None:
        """Events tell of this request's blocks from `after_s` seconds from now on.

        Nothing where a later, longer request has touched its last block: its own blocks
        are then that request's as well, and wait for it.
        """
        run = self._run_of(hashes)
        if run is not None:
            run.spoken_at = min(run.spoken_at, self._clock() + after_s)

    def held(self, hashes: Sequence[int], *, live: bool, start: int = 0) -> int:
        """Leading blocks taken as held, given that the first `start` are.

        `live`: only blocks that events cannot have told of yet.
        """
        blocks = self._noted(hashes, start, live=live)
        if self._strikes:
            blocks = self._to_first_struck(hashes, start, blocks)
        return blocks

    def _noted(self, hashes: Sequence[int], start: int, *, live: bool) -> int:
        """The same, whatever contradicts it."""
        now, blocks = self._clock(), start
        while blocks < len(hashes):
            run = self._run_at(hashes, blocks)
            if run is None or (live and run.spoken_at <= now):
                break
            blocks = max(run.follows(hashes, blocks), blocks + 1)
        return blocks

    def _to_first_struck(self, hashes: Sequence[int], start: int, blocks: int) -> int:
        strikes = self._strikes
        if strikes.keys().isdisjoint(hashes[start:blocks]):
            return blocks
        struck = (
            p for p in range(start, blocks) if strikes.get(hashes[p], 0) >= STRIKES
        )
        return next(struck, blocks)

    def delivered(
        self, hashes: Sequence[int], delivered_blocks: int, guessed_blocks: int
    ) -> None:
        """The worker found `delivered_blocks` of these cached, we guessed so many.

        What it found is confirmed; what it lacked of the guess is contradicted, and
        stops to count after `STRIKES` contradictions without a confirmation. So does
        what comes behind it, so the first blocks of it will do.
        """
        strikes = self._strikes
        if strikes:
            for block_hash in [h for h in hashes[:delivered_blocks] if h in strikes]:
                del strikes[block_hash]
        end = min(guessed_blocks, delivered_blocks + _STRUCK, len(hashes))
        for position in range(delivered_blocks, end):
            if self._run_at(hashes, position) is not None:
                block_hash = hashes[position]
                strikes[block_hash] = strikes.get(block_hash, 0) + 1
        while len(strikes) > _ALL_STRUCK:
            del strikes[next(iter(strikes))]

    def clear(self) -> None:
        """The owner's cache is empty; memory is given back as requests are sent."""
        if self._runs:
            self._old_runs.append(self._runs)
        self._waste.add(*self._part_of.shards, self._strikes)
        self._start()

    def _free(self, budget: int) -> None:
        """Free about so many blocks of what was forgotten."""
        budget = self._forget(budget)
        while self._old_runs and budget > 0:
            runs = self._old_runs[-1]
            if (run := runs.first) is None:
                self._old_runs.pop()
                continue
            runs.remove(run)
            budget -= len(run.hashes)
        self._waste.free(max(0, budget))
