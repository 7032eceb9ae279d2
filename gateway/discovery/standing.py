"""How it goes with one source of workers: when it last told something, its failures."""

import logging
import random
from collections import Counter
from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST_BACK_OFF_S = 0.5
MAX_BACK_OFF_S = 30.0


class SourceFailed(Exception):
    """A source could not be asked: the workers stay as they are.

    `reason` is one of few words, for a metric; the text is for the log.
    """

    def __init__(self, reason: str, text: str, *, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.reason = reason
        self.wait_s = wait_s
        """How long it asked to be left alone."""


class SourceStanding:
    """The standing of one source, told in the log when it changes."""

    def __init__(
        self,
        name: str,
        reasons: tuple[str, ...],
        *,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        """`clock` tells the time of day; `reasons` are those it may fail by."""
        self.name = name
        self.failures: Counter[str] = Counter(dict.fromkeys(reasons, 0))
        self.succeeded_at = 0.0
        """Time of day; 0: never yet."""
        self._clock = clock
        self._rng = rng
        self._in_a_row = 0
        self.trouble: SourceFailed | None = None
        """Why it cannot be asked now."""
        self._odd = ""

    def succeeded(self) -> None:
        """It told something, or that nothing changed."""
        self.succeeded_at = self._clock()
        if self.trouble is not None:
            log.info("%s answers again", self.name)
        self.trouble, self._in_a_row = None, 0

    def failed(self, error: SourceFailed) -> float:
        """It did not; the seconds until it is asked again."""
        self.failures[error.reason] += 1
        if str(error) != str(self.trouble):
            log.warning("%s: %s; the workers stay as they are", self.name, error)
        self.trouble = error
        self._in_a_row += 1
        doubled = FIRST_BACK_OFF_S * 2.0 ** min(self._in_a_row - 1, 10)
        wait = min(max(doubled, error.wait_s), MAX_BACK_OFF_S)
        return wait * self._rng.uniform(0.8, 1.2)

    def odd(self, reason: str, text: str) -> None:
        """Something in what it told cannot be used; the rest is."""
        self.failures[reason] += 1
        if text != self._odd:
            log.warning("%s: %s", self.name, text)
        self._odd = text
