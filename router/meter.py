"""How long the prefills at one (worker, rank) take, seen from their first tokens.

A worker prefills one after the other, so while several are in flight the time between
two first tokens is what the later one took, however long it had queued. First tokens
that come together are of one step, which took what it took for all of them. What a
prefill took that nobody saw end (an answer that is not streamed, a request that failed)
is not known, nor is that of the one behind it.
"""

from collections.abc import Callable

from router.rate import PrefillRate

ONE_STEP_S = 0.004
"""First tokens that are not further apart are of one step."""


class _Step:
    """Prefills that ended together, until all of their requests have."""

    __slots__ = ("open", "tokens", "took_s")

    def __init__(self, took_s: float | None) -> None:
        self.took_s = took_s
        self.tokens = 0
        self.open = 0


class Prefill:
    """A streamed request until it has ended. Calls after the first change nothing."""

    __slots__ = ("_meter", "_over", "_step")

    def __init__(self, meter: "PrefillMeter") -> None:
        self._meter = meter
        self._over = False
        self._step: _Step | None = None

    def first_token(self) -> None:
        """Its prefill is over."""
        if not self._over:
            self._over = True
            self._step = self._meter._prefilled()

    def ended(self, uncached_tokens: int | None) -> None:
        """The request is over; None where its uncached tokens are not known."""
        if not self._over:
            self._over = True
            self._meter._lost()
        step, self._step = self._step, None
        if step is not None:
            self._meter._ended(step, uncached_tokens)


class PrefillMeter:
    """Times the prefills of one rank, and tells its worker's rate."""

    def __init__(self, rate: PrefillRate, *, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._in_flight = 0
        self._since = 0.0
        """When the prefill under way began."""
        self._step: _Step | None = None
        """The last one that ended, while another may join it."""
        self._unknown = False
        self._unseen_until = float("-inf")

    def begin(self) -> Prefill:
        """A request is about to be sent whose first token will be seen."""
        if not self._in_flight:
            self._next(self._clock())
        self._in_flight += 1
        return Prefill(self)

    def unseen(self, estimate_s: float) -> None:
        """One whose first token will not be seen: over by then, most likely."""
        self._unseen_until = max(self._unseen_until, self._clock() + estimate_s)

    def _next(self, now: float) -> None:
        """The next prefill begins; nothing joins the step before."""
        step, self._step, self._since = self._step, None, now
        if step is not None:
            self._learn(step)

    def _prefilled(self) -> _Step:
        now = self._clock()
        if self._step is None or now - self._since > ONE_STEP_S:
            known = not self._unknown and self._since >= self._unseen_until
            step = _Step(now - self._since if known else None)
            self._next(now)
            self._step = step
        self._step.open += 1
        self._in_flight -= 1
        self._unknown = False
        return self._step

    def _lost(self) -> None:
        self._in_flight -= 1
        self._next(self._clock())
        self._unknown = self._in_flight > 0

    def _ended(self, step: _Step, uncached_tokens: int | None) -> None:
        step.open -= 1
        if uncached_tokens is None:
            step.took_s = None
        else:
            step.tokens += uncached_tokens
        if step is not self._step:
            self._learn(step)

    def _learn(self, step: _Step) -> None:
        """Once no other can join a step, and all of it has ended."""
        if step.open == 0 and step.took_s is not None:
            self.rate.learn(step.tokens, step.took_s)
            step.took_s = None
