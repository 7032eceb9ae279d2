"""What the number of a batch says: nothing but that.

Numbers count up by one from 0 at the worker's start. The live socket keeps their order,
so a lower one is a worker that began anew (`LiveOrder`). A replay gives old ones again
and may run ahead of the live socket, so what was applied is kept apart (`Progress`).

Two publishers under one name show as numbers that go on in two places by turns. A step
back to just where a jump began is therefore no restart yet: such a batch is *late*, and
after some turns the stream is *shared*, until it goes on in one place for a while.

Not here: what follows from it (`following.py`).
"""

from enum import Enum

from xxhash import xxh3_128_intdigest

Payload = bytes | memoryview

TURNS = 3
"""Turns between two places that make a stream shared."""
ALONE = 64
"""Batches in a row in one place after which it is so no more."""
AFTER_ALL = 16
"""Late batches in a row that are a restart after all."""
AHEAD = 16_384
"""Batches of a replay that the live socket may still bring."""


def digest_of(payload: Payload) -> int:
    """What tells the bytes of two batches apart."""
    return xxh3_128_intdigest(payload)


class Arrival(Enum):
    """How a batch of the live socket relates to those before it there."""

    ON = "on"
    DUPLICATE = "duplicate"
    RESTART = "restart"
    LATE = "late"
    SHARED = "shared"


class LiveOrder:
    """Where the live socket is, and where it was before its number last jumped."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._digest = 0
        self._side: int | None = None
        self._aside = self._shared = False
        self._turns = self._run = 0

    def arrive(self, sequence: int, digest: int) -> Arrival:
        """Take a batch; one of a shared stream is in no order with those before."""
        if (sequence, digest) == (self._number, self._digest):
            return Arrival.DUPLICATE
        arrival = self._place(sequence)
        if arrival is not Arrival.LATE:
            self._digest = digest
        limit = AFTER_ALL if self._aside and not self._shared else ALONE
        if self._run >= limit:
            anew = self._aside or self._shared
            self._number, self._digest, self._side = sequence, digest, None
            self._shared = self._aside = False
            self._turns = self._run = 0
            return Arrival.RESTART if anew else arrival
        self._shared = self._shared or self._turns >= TURNS
        return Arrival.SHARED if self._shared else arrival

    def parted(self) -> None:
        """The connection was lost: what comes is of one publisher, by the next one."""
        self._side, self._aside, self._turns, self._run = None, False, 0, 0

    def _place(self, sequence: int) -> Arrival:
        number, side = self._number, self._side
        if number is None or sequence == number + 1:
            self._number = sequence
            self._stay(aside=False)
            return Arrival.ON
        if side is not None and sequence == side + 1:
            self._stay(aside=sequence < number)
            if sequence < number:
                self._side = sequence
                if sequence + 1 == number:  # the hole is filled: just out of order
                    self._side, self._aside = None, False
                    self._turns -= 1
                return Arrival.LATE
            self._turns += 1
        else:
            self._run = 0
        self._number, self._side = sequence, number
        return Arrival.ON if sequence > number else Arrival.RESTART

    def _stay(self, *, aside: bool) -> None:
        """Count batches in one place, and turns to the other."""
        self._run = self._run + 1 if aside == self._aside else 1
        self._turns += aside and not self._aside
        self._aside = aside


class Step(Enum):
    """How a batch relates to the last one that was applied."""

    FIRST = "first"
    NEXT = "next"
    GAP = "gap"
    KNOWN = "known"
    OTHER = "other"


class Progress:
    """`last` is the number of the last batch applied."""

    def __init__(self) -> None:
        self.last: int | None = None
        self._digest = 0
        self._ahead: dict[int, int] = {}

    def step(self, sequence: int, digest: int) -> Step:
        """What applying this batch now would be.

        A lower number is *known*: a replay was faster. With other bytes than there, or
        than the last batch, it is of *other* content: another process.
        """
        if self.last is None:
            return Step.FIRST
        if sequence > self.last:
            return Step.NEXT if sequence == self.last + 1 else Step.GAP
        known = self._ahead.pop(sequence, digest)
        if sequence == self.last:
            known = self._digest
        return Step.KNOWN if known == digest else Step.OTHER

    def missed(self, sequence: int) -> int:
        """How many batches are skipped where this one is next."""
        return sequence - (sequence if self.last is None else self.last + 1)

    def applied(self, sequence: int, digest: int, *, ahead: bool = False) -> None:
        """This batch is the last one; `ahead` of the live socket if it was replayed."""
        self.last, self._digest = sequence, digest
        if ahead:
            self._ahead[sequence] = digest
            if len(self._ahead) > AHEAD:
                del self._ahead[next(iter(self._ahead))]
        elif self._ahead:
            self._ahead.clear()
