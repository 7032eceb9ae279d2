"""Requests that are not streamed, on a fleet whose workers may hang, on its clock."""

import heapq
import itertools
from collections.abc import Callable

from router import Decision, Usage
from tests.router.fleet import Fleet, prompt

PATIENCE_S = 4.0


class Traffic:
    """Clients that ask, wait, and leave a worker that hangs when patience ends."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        takes_s: Callable[[Decision], float] = lambda decision: 0.05,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`takes_s` says how long an answer takes; its decision was just made."""
        self.fleet = fleet
        self.hung: set[str] = set()
        self.lost = 0
        """Requests whose clients left."""
        self.asked = 0
        self._takes_s = takes_s
        self._patience_s = patience_s
        self._open: list[tuple[float, int, Decision, bool]] = []
        self._order = itertools.count()

    @property
    def waiting(self) -> int:
        """Requests that are not over."""
        return len(self._open)

    def ask(self, seed: int, tokens: int = 500) -> Decision:
        """A request for that prompt, on its way; it is over when the clock says so."""
        request = self.fleet.request(prompt(seed, tokens), stream=False)
        decision = self.fleet.router.decide(request)
        decision.sent()
        self.asked += 1
        hangs = decision.worker.url in self.hung
        lasts_s = self._patience_s if hangs else self._takes_s(decision)
        end_at = self.fleet.clock.now + lasts_s
        heapq.heappush(self._open, (end_at, next(self._order), decision, hangs))
        return decision

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due ends."""
        until = self.fleet.clock.now + seconds
        while self._open and self._open[0][0] <= until:
            self.end_next()
        self.fleet.clock.now = until

    def end_next(self) -> Decision:
        """Time passes until the next request is over."""
        at, _, decision, hangs = heapq.heappop(self._open)
        self.fleet.clock.now = max(self.fleet.clock.now, at)
        if hangs:
            self.lost += 1
            decision.failed("client")
        else:
            decision.finished(Usage(prompt_tokens=500, completion_tokens=100))
        return decision

    def in_turn(self, *seeds: int) -> list[str]:
        """One after the other, each when the one before is over: where they went."""
        return [self._one(seed).worker.url for seed in seeds]

    def _one(self, seed: int) -> Decision:
        decision = self.ask(seed)
        while decision.outcome is None and self.waiting:
            if self.end_next() is decision:
                break
        return decision
