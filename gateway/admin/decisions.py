"""The last decisions and what came of them: a ring in memory, for the live page.

Numbers, the worker and the reason; nothing of a prompt or an answer, nothing a client
chose.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from router.decision import Decision
from router.outcome import Outcome

CAPACITY = 100
"""Decisions that are kept."""

UNDER_WAY = "under way"
FINISHED = "finished"


class Noted:
    """One decision; its end is written down when it comes."""

    __slots__ = ("_decided", "_delivered", "_end", "_facts", "_first_token_s")

    def __init__(self, decision: Decision, decided: float) -> None:
        # The decision itself would keep the blocks of a whole prompt.
        self._facts: dict[str, Any] = {
            "worker": decision.worker.url,
            "rank": decision.rank,
            "why": decision.why,
            "prompt_tokens": decision.prompt_tokens,
            "predicted_hit_tokens": decision.hit_tokens,
            "best_hit_tokens": decision.best_hit_tokens,
            "ids_withheld": decision.no_ids,
        }
        self._decided = decided
        self._first_token_s: float | None = None
        self._delivered: int | None = None
        self._end = UNDER_WAY

    def first_token(self, seconds: float) -> None:
        """The first event came, so long after the request."""
        self._first_token_s = round(seconds, 4)

    def finished(self, outcome: Outcome | None) -> None:
        """The answer is whole."""
        self._end = FINISHED
        if outcome is not None:
            self._facts["prompt_tokens"] = outcome.prompt_tokens
            self._delivered = outcome.delivered_hit_tokens

    def failed(self, kind: str) -> None:
        """It is not, for a reason in one word."""
        self._end = kind

    def page(self, now: float) -> dict[str, Any]:
        """It as a JSON-ready value; `now` is by the clock of the ring."""
        return self._facts | {
            "ago_s": round(now - self._decided, 1),
            "end": self._end,
            "first_token_s": self._first_token_s,
            "delivered_hit_tokens": self._delivered,
        }


class Decisions:
    """The ring."""

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._ring: deque[Noted] = deque(maxlen=capacity)

    def note(self, decision: Decision) -> Noted:
        """Keep a decision; the oldest one goes."""
        noted = Noted(decision, self._clock())
        self._ring.append(noted)
        return noted

    def page(self) -> list[dict[str, Any]]:
        """All of them, the last one first."""
        now = self._clock()
        return [noted.page(now) for noted in reversed(self._ring)]
