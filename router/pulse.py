"""Signs of life of one worker: is something overdue while nothing at all comes?

A worker that prefills for a minute is alive, and so is one whose queue is long: as
long as any of its streams goes on. One that owes first tokens and sends nothing to
anybody, for longer than what was sent to it should take, is not to get more. Answers
that are not streamed owe nothing here: they are silent until their end.
"""

import math
from collections.abc import Callable

TIMES = 3.0
"""A first token is late after as many times what it should take."""
BEHIND_S = 1.0
"""Seconds it may take longer for what was sent later, at most."""


class Pulse:
    """Counts what comes from a worker, and the first tokens that it owes."""

    __slots__ = ("_clock", "_seen", "_since", "beats", "expected_s", "owed")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.beats = 0
        """Pieces of answers that came; only whether it grows is of interest."""
        self._clock = clock
        self.owed = 0
        """Requests whose first token is waited for."""
        self.expected_s = math.inf
        """The least that its prefills were expected to take since it fell silent."""
        self._seen = 0
        self._since = clock()

    def owe(self) -> None:
        """A request was sent whose first token will be seen."""
        if not self.owed:
            self._since, self.expected_s = self._clock(), math.inf
        self.owed += 1

    def settle(self) -> None:
        """A first token that was owed is there, or nobody waits for it any more."""
        self.owed -= 1

    def silent_s(self, prefill_s: float) -> float:
        """Seconds for which a first token is owed and nothing has come.

        `prefill_s` is what its prefills are expected to take now. Seen whenever
        somebody looks: never more than it is, and less by the time since the last look
        at most.
        """
        now = self._clock()
        if self.beats != self._seen or not self.owed:
            self._seen, self._since, self.expected_s = self.beats, now, prefill_s
        self.expected_s = min(self.expected_s, prefill_s)
        return now - self._since

    def late_s(self, prefill_s: float, cost_s: float) -> float:
        """Seconds for which something should have come; 0: it is in time.

        `cost_s` is what a first token takes besides its prefill.
        """
        silent_s = self.silent_s(prefill_s)
        if not silent_s:
            return 0.0
        # What came later may be prefilled along with it, but its time is no margin: a
        # worker that hangs would be given ever more of it.
        first_s = self.expected_s
        behind_s = min(prefill_s - first_s, BEHIND_S)
        return max(0.0, silent_s - TIMES * (cost_s + first_s) - behind_s)
