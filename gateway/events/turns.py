"""Numbers that step back on one connection: a restart, or two publishers behind it.

A publisher that begins anew connects anew; so these are publishers behind a forwarder.
Two may use one topic without knowing. Their numbers then go on in two places
by turns, and neither cache may be taken for the other's, nor for emptied. So after a
step back batches wait until it shows: the old place goes on (*shared*: nothing counts
until only one is left), or it does not (a restart). A batch that goes on in both places
is the new one's: of two publishers the other has the same number still to come. Two
that are too slow for the wait show by some turns. No I/O, no clock of its own.
"""

from collections.abc import Iterator

WAIT_S = 2.0
ENOUGH = 16
"""Batches that wait with none of the old place alone between: a restart. Publishers
that send fewer than half as many by turns are never taken for one that restarts."""
TURNS = 3
"""Jumps in a row, each to just where the one before began: two publishers. One may be a
process that began anew and is heard late."""
ALONE = 64
"""Batches in a row in one place, after which a shared stream is one publisher's."""

Batch = tuple[int, bytes]
"""Sequence number and payload."""


class Turns:
    """The batches of one stream, as far as they are one publisher's."""

    def __init__(self) -> None:
        self.shared = False
        self._last: Batch | None = None
        self._held: list[Batch] = []
        self._since = 0.0
        self._run = 0
        self._at, self._aside, self._turns = -1, -2, 0

    def take(self, sequence: int, payload: bytes, now: float) -> Iterator[Batch]:
        """A batch at a time in seconds; those that may be handed on now, in order."""
        batch = (sequence, payload)
        self._count_turns(sequence)
        if self.shared:
            yield from self._alone(batch)
        elif self._turns >= TURNS or self._only_old_goes_on(sequence):
            self.shared, self._held, self._run = True, [], 0
            self._last = batch
        elif self._held:
            self._held.append(batch)
            yield from self.settle(now)
        elif self._goes_back(batch):
            self._held, self._since = [batch], now
        else:
            self._last = batch
            yield batch

    def _goes_back(self, batch: Batch) -> bool:
        """A lower number, or the same with other bytes."""
        last = self._last
        return last is not None and batch != last and batch[0] <= last[0]

    def _count_turns(self, sequence: int) -> None:
        if sequence != self._at + 1:
            self._turns = self._turns + 1 if sequence == self._aside + 1 else 0
            self._aside = self._at
        self._at = sequence

    def _only_old_goes_on(self, sequence: int) -> bool:
        if self._last is None or not self._held:
            return False
        return self._last[0] + 1 == sequence != self._held[-1][0] + 1

    def settle(self, now: float) -> Iterator[Batch]:
        """Let time pass: the batches that have waited for long enough."""
        waited = self._held and now - self._since >= WAIT_S
        if waited or len(self._held) >= ENOUGH:
            held, self._held = self._held, []
            self._last = held[-1]
            yield from held

    def _alone(self, batch: Batch) -> Iterator[Batch]:
        follows = self._last is not None and batch[0] == self._last[0] + 1
        self._run = self._run + 1 if follows else 0
        self._last = batch
        if self._run >= ALONE:
            self.shared, self._turns = False, 0
            yield batch
