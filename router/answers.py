"""Answers that are not streamed: which of those that a worker owes are overdue?

Such an answer is silent until its end, and how long it takes nobody knows: one that
takes long says nothing. Three say that a worker hangs, if nothing at all has come from
it since they were sent, and each took longer than the longest did lately when its
client gave up, or three times as long and is still waited for.
"""

import math
from collections.abc import Callable
from itertools import islice

import msgspec

IN_A_ROW = 3
"""So many are no accident: what one asked for may take long, or not be wanted."""
TIMES = 3.0
"""An answer is late after as many times what it should take."""
AVOIDED_S = 1.0
"""Overdue for longer than that, they have their worker avoided."""
FORGET = 0.05
"""Of what the longest took beyond the latest, each answer has so much forgotten."""


class Longest:
    """Seconds that answers take, at most: the longest one lately; 0: there was none."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def add(self, took_s: float) -> None:
        """One took so long."""
        faded_s = self.seconds + FORGET * (took_s - self.seconds)
        self.seconds = max(took_s, faded_s)


class _Wait(msgspec.Struct, frozen=True):
    """Since when an answer is waited for, and what its prefill should take."""

    sent_at: float
    prefill_s: float


class Answers:
    """The answers that a worker owes, while nothing at all comes from it."""

    __slots__ = ("_clock", "_fleet", "_missed_s", "_own", "_waits", "missed")

    def __init__(self, clock: Callable[[], float], fleet: Longest) -> None:
        """`fleet` is what answers of any worker take; it is learnt here as well."""
        self.missed = 0
        """Those that were waited for in vain."""
        self._missed_s = 0.0
        """How much too long the last of them was waited for."""
        self._clock = clock
        self._fleet = fleet
        self._own = Longest()
        self._waits: dict[object, _Wait] = {}
        """By request, in the order in which they were sent."""

    @property
    def usual_s(self) -> float:
        """What one may take; endless where none is known.

        Where prefixes are, there go requests alike: its own may be longer than others'.
        """
        return max(self._own.seconds, self._fleet.seconds) or math.inf

    @property
    def waiting(self) -> bool:
        """Whether any is waited for."""
        return bool(self._waits)

    def sent(self, request: object, prefill_s: float) -> None:
        """The answer to that request is waited for from now on."""
        self._waits[request] = _Wait(sent_at=self._clock(), prefill_s=prefill_s)

    def took(self, seconds: float) -> None:
        """A whole one came so long after its request was sent."""
        self._own.add(seconds)
        self._fleet.add(seconds)

    def over(self, request: object) -> None:
        """It is there, or nobody waits for it any more."""
        self._waits.pop(request, None)

    def gave_up(self, request: object) -> None:
        """Its client left: in vain, if it waited for longer than is usual."""
        wait = self._waits.get(request)
        late_s = 0.0 if wait is None else self._late_s(wait, 1.0)
        if late_s > 0:
            self.missed += 1
            self._missed_s = late_s

    def heard(self) -> None:
        """Something came from the worker: whatever it owes, it works."""
        self._waits.clear()
        self.forget()

    def forget(self) -> None:
        """What was missed is made up for, or was counted as a failure."""
        self.missed, self._missed_s = 0, 0.0

    def late_s(self, enough: int = IN_A_ROW) -> float:
        """Seconds for which `enough` of them are overdue; 0: they are in time."""
        more = enough - self.missed
        if more <= 0:
            return self._missed_s
        if len(self._waits) < more:
            return 0.0
        oldest = islice(self._waits.values(), more)
        return max(0.0, min(self._late_s(wait, TIMES) for wait in oldest))

    def _late_s(self, wait: _Wait, times: float) -> float:
        due_s = times * (wait.prefill_s + self.usual_s)
        return self._clock() - wait.sent_at - due_s
