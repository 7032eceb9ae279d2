"""Numbers that step back on the gateway's own socket: a restart, or two publishers.

Two publishers may use one topic without knowing. Their numbers then go on in two places
by turns, and neither cache may be taken for the other's, nor for emptied. So after a
step back batches wait until it shows: the old place goes on (*shared*: nothing counts
until only one is left), or it does not (a restart). No I/O, no clock of its own.
"""

from collections.abc import Iterator

WAIT_S = 2.0
ENOUGH = 8
"""Batches of the new place with none of the old one between: a restart."""
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

    def take(self, sequence: int, payload: bytes, now: float) -> Iterator[Batch]:
        """A batch at a time in seconds; those that may be handed on now, in order."""
        batch = (sequence, payload)
        if self.shared:
            yield from self._alone(batch)
        elif not self._held:
            if self._goes_back(batch):
                self._held, self._since = [batch], now
            else:
                self._last = batch
                yield batch
        elif self._last is not None and sequence == self._last[0] + 1:
            self.shared, self._held, self._run = True, [], 0
            self._last = batch
        else:
            self._held.append(batch)
            yield from self.settle(now)

    def _goes_back(self, batch: Batch) -> bool:
        """A lower number, or the same with other bytes."""
        last = self._last
        return last is not None and batch != last and batch[0] <= last[0]

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
            self.shared = False
            yield batch
