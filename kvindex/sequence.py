"""What the next batch's sequence number says: nothing but that.

Not here: what follows from it (`feed.py`).
"""

from enum import Enum

from xxhash import xxh3_128_intdigest


class Arrival(Enum):
    """How a batch relates to the one before."""

    FIRST = "first"
    NEXT = "next"
    GAP = "gap"
    DUPLICATE = "duplicate"
    RESTART = "restart"


class SequenceCheck:
    """The last number seen on a live socket, and the digest of its bytes.

    Numbers count up by one from 0 at the worker's start; ZMQ keeps their order.
    """

    def __init__(self) -> None:
        self.last: int | None = None
        self.missed = 0
        self._digest = 0

    def arrive(self, sequence: int, payload: bytes) -> Arrival:
        """Take a batch; `missed` is how many a gap skipped."""
        digest = xxh3_128_intdigest(payload)
        last, self.missed = self.last, 0
        if last is not None and sequence == last and digest == self._digest:
            return Arrival.DUPLICATE
        self.last, self._digest = sequence, digest
        if last is None:
            return Arrival.FIRST
        if sequence <= last:
            return Arrival.RESTART
        self.missed = sequence - last - 1
        return Arrival.GAP if self.missed else Arrival.NEXT

    def forget(self) -> None:
        """The next batch is the first."""
        self.last = None
