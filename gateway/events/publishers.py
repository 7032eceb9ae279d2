"""Who publishes on a stream of the gateway's own socket: one, or two by mistake.

A message tells the connection it came by, and ZMQ tells which were lost. A publisher
keeps one connection until it ends; so two that use one topic are known by two open ones
that both speak, however slowly: neither cache may be taken for the other's, nor for
emptied, until the one that was followed is left alone, or the other is. What came
by one connection alone is judged by its numbers (`turns.py`): a forwarder may stand
between. No I/O, no clock of its own.
"""

from collections.abc import Iterator

from gateway.events.turns import ALONE, Batch, Turns


class Publishers:
    """The open connections of one stream, and the one that is followed."""

    def __init__(self) -> None:
        self.anew = False
        """Another publisher is left than the one that was followed: to be reset."""
        self._turns: dict[int, Turns] = {}
        self._followed = -1
        self._two = False
        self._run = 0

    @property
    def shared(self) -> bool:
        """Do two publish? Then nothing counts."""
        turns = self._turns.get(self._followed)
        return self._two or (turns is not None and turns.shared)

    def is_one_more(self, connection: int) -> bool:
        """Is this one more connection, while the followed one is open?"""
        return self._followed in self._turns and connection not in self._turns

    def take(
        self, connection: int, sequence: int, payload: bytes, now: float
    ) -> Iterator[Batch]:
        """A batch at a time in seconds; those that may be handed on now, in order."""
        self._place(connection, sequence)
        turns = self._turns[connection]
        if not self._two:
            yield from turns.take(sequence, payload, now)
            return
        self._run = self._run + 1 if connection == self._followed else 0
        if self._run >= ALONE:
            self._two = False
            self._turns[connection] = Turns()

    def _place(self, connection: int, sequence: int) -> None:
        followed = self._turns.get(self._followed)
        known = connection in self._turns
        if not known:
            self._turns[connection] = Turns()
        if connection == self._followed:
            return
        if followed is not None and (known or followed.passed(sequence)):
            self._two, self._run = True, 0
        elif not self._two:
            self.anew, self._followed = known, connection

    def closed(self, connection: int) -> bool:
        """A connection was lost; may batches that counted be missed since?"""
        open_before = self._turns.pop(connection, None) is not None
        if self._two and len(self._turns) <= 1:
            self._two = False
            for left in self._turns:
                self.anew, self._followed = left != self._followed, left
            return open_before
        return open_before and connection == self._followed

    def settle(self, now: float) -> Iterator[Batch]:
        """Let time pass: the batches that have waited for long enough."""
        turns = self._turns.get(self._followed)
        if turns is not None and not self._two:
            yield from turns.settle(now)
