"""Who publishes on a stream of the gateway's own socket: one, or two by mistake.

A publisher keeps one connection until it ends. So two that use one topic are known by
two open connections that both speak, however slowly: neither cache may be taken for the
other's, nor for emptied. Nothing counts until one of them is left.

- What came by a connection is taken before what came by a later one, though ZMQ mixes
  them: a newcomer's batches wait until all is taken that had come (`quiet`).
- The followed connection is lost by then: the newcomer is the one that is followed.
- It is open still: where the numbers go on, the newcomer is the same publisher that
  connected anew; else there are two. So there are where the older one speaks again.

What came by one connection alone is judged by its numbers (`turns.py`): a forwarder may
stand between. No I/O, no clock of its own.
"""

import math
from collections.abc import Iterator, Set
from operator import itemgetter

from gateway.events.turns import ALONE, Batch, Turns

ASIDE = 10_000
"""Batches of newcomers that wait at most; the rest shows as missed."""


class Publishers:
    """The connections of one stream, by their names: a later one's is higher."""

    def __init__(self) -> None:
        self.anew = False
        """What was handed on until now is not that of the one that is left."""
        self._open: set[int] = set()
        self._counted: set[int] = set()
        """Whose batches were handed on, and may be held still."""
        self._others: set[int] = set()
        """Open ones that are known to be another publisher's."""
        self._followed = 0
        self._last: float = -1
        self._turns = Turns()
        self._aside: list[tuple[int, Batch]] = []
        self._two = False
        self._alone, self._run = 0, 0

    @property
    def shared(self) -> bool:
        """Do two publish? Then nothing counts."""
        return self._two or self._turns.shared

    @property
    def waits(self) -> bool:
        """Is `quiet` to be called, once all that has come is taken?"""
        return bool(self._aside)

    def take(
        self, connection: int, sequence: int, payload: bytes, now: float
    ) -> Iterator[Batch]:
        """A batch at a time in seconds; those that may be handed on now, in order."""
        self._open.add(connection)
        if self._two:
            self._count_alone(connection, sequence)
        elif connection == self._followed:
            yield from self._hand_on(connection, (sequence, payload), now)
        elif len(self._aside) < ASIDE:
            self._aside.append((connection, (sequence, payload)))

    def quiet(self, now: float) -> Iterator[Batch]:
        """All that had come is taken, losses too: what waited may be handed on."""
        aside, self._aside = sorted(self._aside, key=itemgetter(0)), []
        for connection, batch in aside:
            if self._two:
                break
            if connection != self._followed and self._followed in self._open:
                self._two = not self._goes_on(connection, batch[0])
                self._alone, self._run = 0, 0
            if not self._two:
                yield from self._hand_on(connection, batch, now)
        self._see_left()

    def _goes_on(self, connection: int, sequence: int) -> bool:
        """May this be the followed one's next connection?"""
        later = connection > self._followed and self._last < sequence
        return later and connection not in self._others

    def closed(self, lost: Set[int]) -> bool:
        """Connections were lost; may batches that count be missed since?"""
        gone = self._open & lost
        self._open -= gone
        self._others -= gone
        if not self._two:
            self._counted -= gone - {self._followed}
            return self._followed in gone
        self._see_left()
        return bool(gone) and not self._open

    def settle(self, now: float) -> Iterator[Batch]:
        """Let time pass: the batches that have waited for long enough."""
        if not self._two:
            lost = self._followed not in self._open
            yield from self._turns.settle(math.inf if lost else now)

    def _hand_on(self, connection: int, batch: Batch, now: float) -> Iterator[Batch]:
        if connection != self._followed:
            self._follow(connection)
        self._counted.add(connection)
        self._last = batch[0]
        yield from self._turns.take(*batch, now)

    def _follow(self, connection: int) -> None:
        """From now on it is this one; a lost one before it has no part any more."""
        self._counted &= self._open
        self._followed, self._turns = connection, Turns()

    def _count_alone(self, connection: int, sequence: int) -> None:
        """Of two, one that is quiet for long does not count, where it never did."""
        self._run = self._run + 1 if connection == self._alone else 1
        self._alone, self._last = connection, sequence
        others = self._counted - {connection}
        if self._run >= ALONE and others.isdisjoint(self._open):
            self._end_two(connection)

    def _see_left(self) -> None:
        if self._two and len(self._open) <= 1:
            self._end_two(*self._open)

    def _end_two(self, left: int = 0) -> None:
        """Only this one is left, or none."""
        self._two = False
        if self._counted - {left} if left else len(self._counted) > 1:
            self._counted.clear()
            self.anew = True
        self._others = self._open - {left}
        self._follow(left)
        if self._alone != left:
            self._last = math.inf  # not known: whoever comes beside it is one more
