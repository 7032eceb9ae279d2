"""Hit tokens and times to the first token of the last minutes, in slots of seconds.

For the live page, which has no Prometheus to ask; what is counted for good is in
`metrics.py`.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from router.outcome import Outcome

SLOT_S = 5.0
SLOTS = 120
MOST_TIMES = 256
"""Times that a slot keeps; the last ones of more."""


class _Slot:
    """What ended in one stretch of time."""

    __slots__ = ("best", "delivered", "number", "predicted", "prompt", "times")

    def __init__(self, number: int) -> None:
        self.number = number
        self.prompt = self.delivered = self.predicted = self.best = 0
        self.times: deque[float] = deque(maxlen=MOST_TIMES)


class Recent:
    """The last ten minutes; older ones are forgotten as new ones come."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: deque[_Slot] = deque(maxlen=SLOTS)

    def first_token(self, seconds: float) -> None:
        """A streamed answer began, so long after its request."""
        self._now().times.append(seconds)

    def finished(self, outcome: Outcome) -> None:
        """A request whose worker told its cached tokens is over."""
        if outcome.delivered_hit_tokens is None:
            return
        slot = self._now()
        slot.prompt += outcome.prompt_tokens
        slot.delivered += outcome.delivered_hit_tokens
        slot.predicted += outcome.predicted_hit_tokens
        slot.best += outcome.best_hit_tokens

    def page(self) -> dict[str, Any]:
        """The slots as JSON-ready values; slots in which nothing happened are left out.

        `age` counts slots back from the present one, which is 0.
        """
        now = self._number()
        slots = [
            {
                "age": now - slot.number,
                "prompt_tokens": slot.prompt,
                "delivered_hit_tokens": slot.delivered,
                "predicted_hit_tokens": slot.predicted,
                "best_hit_tokens": slot.best,
                "first_token_p50_s": _quantile(slot.times, 0.5),
                "first_token_p95_s": _quantile(slot.times, 0.95),
            }
            for slot in self._slots
            if now - slot.number < SLOTS
        ]
        return {"slot_s": SLOT_S, "slots": slots, "of": SLOTS}

    def _number(self) -> int:
        return int(self._clock() // SLOT_S)

    def _now(self) -> _Slot:
        number = self._number()
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(_Slot(number))
        return self._slots[-1]


def _quantile(times: Sequence[float], q: float) -> float | None:
    """The value below which a share `q` of them lies; None of none."""
    if not times:
        return None
    ordered = sorted(times)
    return round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 4)
