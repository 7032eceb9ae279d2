"""One recovery of missed batches: what is asked for, and the live batches that wait.

Wanted, then asked by whoever has the socket, then over. Not here: what the replayed
batches mean, and the socket.
"""

from collections import deque
from collections.abc import Iterator

HELD_BATCHES = 4_096
HELD_BYTES = 64 * 1024 * 1024
"""Live batches that wait for the end of a replay; beyond, it is given up."""

Held = tuple[int, bytes | memoryview, int]
"""(sequence, payload, digest) of a live batch."""


class Replay:
    """`wanted` is the batch to ask from, inclusive, while nobody has asked yet.

    `active` while asked. `asked_last`: the last batch seen at that time, if it was
    asked for; `returned`: it came; `again`: ask once more, from batch 0. `anew`: what
    is held is to be built anew, and its batch 0 has not come yet.
    """

    def __init__(self) -> None:
        self.wanted: int | None = None
        self.active = self.returned = self.again = self.anew = False
        self.asked_last: int | None = None
        self.since = 0.0
        self._held: deque[Held] = deque()
        self._held_bytes = 0

    @property
    def open(self) -> bool:
        """Do live batches wait?"""
        return self.active or self.wanted is not None

    def want(self, from_sequence: int, now: float, *, anew: bool = False) -> None:
        """A replay from this batch would mend what is missing."""
        self.wanted, self.active, self.since = from_sequence, False, now
        self.anew = anew

    def begin(self, from_sequence: int, last: int | None, now: float) -> None:
        """It is asked; `last` is the last batch seen."""
        self.wanted, self.active, self.since = None, True, now
        self.asked_last = None if last is None or from_sequence > last else last
        self.returned = self.again = False

    def hold(self, held: Held) -> bool:
        """Let a live batch wait; False where that are too many."""
        self._held.append(held)
        self._held_bytes += len(held[1])
        return len(self._held) <= HELD_BATCHES and self._held_bytes <= HELD_BYTES

    def close(self) -> Iterator[Held]:
        """It is over; the batches that waited, in order."""
        self.wanted, self.active, self.anew = None, False, False
        held, self._held, self._held_bytes = self._held, deque(), 0
        while held:
            yield held.popleft()

    def drop(self) -> None:
        """It is over, and what waited is worth nothing."""
        for _ in self.close():
            pass
