"""Signs of life of one worker: is something overdue while nothing at all comes?

A worker that prefills for a minute is alive, and so is one whose queue is long: as
long as any of its streams goes on. One that owes first tokens and sends nothing to
anybody, for longer than what was sent to it should take, is not to get more. Answers
that are not streamed owe no first token; see `answers.py`.
"""

import math
from collections.abc import Callable

import msgspec

from router.answers import IN_A_ROW, Answers, Longest

TIMES = 3.0
"""A first token is late after as many times what it should take."""
BEHIND_S = 1.0
"""Seconds it may take longer for what was sent later, at most."""


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A request of which nothing has come, as it was sent.

    `expected_s` is what its prefill was expected to take, waiting included; `streams`:
    its end will be seen.
    """

    sent_at: float
    beats: int
    expected_s: float
    streams: bool


class Pulse:
    """Counts what comes from a worker, and what it owes."""

    __slots__ = (
        "_awaited",
        "_clock",
        "_excused_beats",
        "_excused_until",
        "_missed_s",
        "_seen",
        "_since",
        "answers",
        "beats",
        "expected_s",
        "missed",
        "owed",
    )

    def __init__(self, clock: Callable[[], float], longest: Longest) -> None:
        """`longest` is what answers that are not streamed take anywhere."""
        self.answers = Answers(clock, longest)
        """What it owes besides first tokens."""
        self.beats = 0
        """Pieces of answers that came; only whether it grows is of interest."""
        self._clock = clock
        self.owed = 0
        """Requests whose first token is waited for."""
        self.missed = 0
        """Those that were waited for in vain, while nothing at all has come since."""
        self._missed_s = 0.0
        """How long it had been silent when the last of them was given up."""
        self.expected_s = math.inf
        """The least that its prefills were expected to take since it fell silent."""
        self._seen = 0
        self._since = self._excused_until = clock()
        self._excused_beats = -1
        self._awaited: dict[object, Awaited] = {}
        """By request, in the order in which they were sent."""

    def sent(self, request: object, expected_s: float, *, streams: bool) -> None:
        """That request was sent: its first token, or else its answer, is waited for."""
        self._look()
        self._awaited[request] = Awaited(
            sent_at=self._clock(),
            beats=self.beats,
            expected_s=expected_s,
            streams=streams,
        )
        if streams:
            self._owe()
        else:
            self.answers.sent(request, expected_s)

    def over(self, request: object) -> None:
        """What was waited for is there, or nobody waits for it any more."""
        awaited = self._awaited.pop(request, None)
        if awaited is not None and awaited.streams:
            self.owed -= 1
        self.answers.over(request)

    def finished(self, request: object) -> None:
        """The whole answer to that request is there."""
        awaited = self._awaited.get(request)
        if awaited is not None and not awaited.streams:
            self.answers.took(self._clock() - awaited.sent_at)
        self.over(request)

    def unheard(self, request: object) -> bool:
        """Whether it is waited for, and nothing at all has come since it was sent."""
        awaited = self._awaited.get(request)
        return awaited is not None and awaited.beats == self.beats

    def in_vain(self, request: object) -> bool:
        """Whether it is unheard for longer than its prefill should have taken."""
        awaited = self._awaited.get(request)
        if awaited is None or awaited.beats != self.beats:
            return False
        return self._clock() - awaited.sent_at > awaited.expected_s

    def excuses(self, prefill_s: float) -> bool:
        """Whether a check may be without an answer for prefills that are under way.

        `prefill_s` is what they should take, as it is now. It counts as it was when the
        first check since the last sign of life got no answer: what is sent to a worker
        that hangs, again and again, does not make it one that prefills.
        """
        now = self._clock()
        if self._excused_beats != self.beats:
            self._excused_beats = self.beats
            self._excused_until = now + TIMES * prefill_s
        return now < self._excused_until

    def checked(self) -> None:
        """A check passed: a sign of life, if only of the server's."""
        self._excused_beats = -1

    def _look(self) -> None:
        """See whether something has come since the last look."""
        if self.beats != self._seen:
            self._seen = self.beats
            self._since = self._clock()
            self.answers.heard()
            self.forget()

    def forget(self) -> None:
        """What was missed is made up for, or was counted as a failure."""
        self.missed, self._missed_s, self.expected_s = 0, 0.0, math.inf
        self.answers.forget()

    def _owe(self) -> None:
        """A request was sent whose first token will be seen."""
        if not self.owed:
            self._since = self._clock() - self._missed_s
            if not self.missed:
                self.expected_s = math.inf
        self.owed += 1

    def gave_up(self, request: object) -> None:
        """The client of that request left before anything came of it.

        If it was waited for in vain, and longer than it should have taken, that is not
        forgotten before anything comes.
        """
        self._look()
        awaited = self._awaited[request]
        if not awaited.streams:
            self.answers.gave_up(request)
        elif self.in_vain(request):
            self.missed += 1
            self._missed_s = self._clock() - self._since
            self.expected_s = min(self.expected_s, awaited.expected_s)

    def silent_s(self, prefill_s: float) -> float:
        """Seconds for which a first token is owed, or was, and nothing has come.

        `prefill_s` is what its prefills are expected to take now. Seen whenever
        somebody looks: never more than it is, and less by the time since the last look
        at most.
        """
        self._look()
        if not self.owed:
            return self._missed_s
        self.expected_s = min(self.expected_s, prefill_s)
        return self._clock() - self._since

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
        behind_s = min(max(0.0, prefill_s - first_s), BEHIND_S)
        return max(0.0, silent_s - TIMES * (cost_s + first_s) - behind_s)

    def answers_late_s(self, enough: int = IN_A_ROW) -> float:
        """Seconds for which that many answers that are not streamed are overdue."""
        self._look()
        return self.answers.late_s(enough)
