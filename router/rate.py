"""What is known of the speed of workers and of how long answers are.

Estimates only; what is in flight is the ledger's business, what prefills took the
meter's.
"""

import math
import statistics
from collections.abc import Callable

from router.line import Line
from router.load import Prefills

PREFILL_RATE_PRIOR = 20_000.0
"""Prefill tokens per second of a worker nothing is known about."""

LEARNT_AFTER = 24
"""Prefills until what was learnt of a worker counts."""
COMPARED_EVERY = 8
COUNTED_AFTER_TOKENS = 20_000.0
"""Tokens that an engine has counted until its counters count."""
LEAST_COUNTED_TOKENS = 256
"""Of a prefill, on average: fewer tell more of the fixed cost than of the rate."""
STEP = math.log(1.25)
"""Speeds are told apart in steps of a quarter."""
STAY = 0.65
"""Steps an estimate may be off before the worker counts as faster or slower."""

OUTPUT_TOKENS_PRIOR = 256.0
MEAN_WEIGHT = 0.05


class PrefillRate:
    """Prefill tokens per second of one worker, learnt from what its prefills took.

    `tokens_per_s` is what routing reckons with, `source` where it is from: "prior",
    "pinned", "fleet" (as fast as the others), "learnt" from streams, or "counted" by
    the engine, where there are no streams to learn from.
    """

    def __init__(
        self,
        tokens_per_s: float = PREFILL_RATE_PRIOR,
        *,
        source: str = "prior",
        on_learnt: Callable[[], None] | None = None,
    ) -> None:
        """Raise ValueError unless the rate is a positive, finite number."""
        if not 0 < tokens_per_s < float("inf"):
            raise ValueError(f"prefill rate must be positive, got {tokens_per_s}")
        self.tokens_per_s = tokens_per_s
        self.source = source
        self.step = 0
        self._on_learnt = on_learnt
        self._line = Line(per_token_s=1 / tokens_per_s)
        self._prefills = 0
        self._counted = Line(per_token_s=1 / tokens_per_s)
        self._counted_tokens = 0.0
        self._counters: dict[int, Prefills] = {}

    @property
    def own(self) -> float | None:
        """What its own prefills say; None before there were enough of them."""
        if self._prefills >= LEARNT_AFTER:
            return 1 / self._line.per_token_s
        if self._counted_tokens >= COUNTED_AFTER_TOKENS:
            return 1 / self._counted.per_token_s
        return None

    @property
    def own_source(self) -> str:
        """Where `own` is from, if there is any."""
        return "learnt" if self._prefills >= LEARNT_AFTER else "counted"

    def seconds(self, tokens: float) -> float:
        """Time to prefill that many tokens."""
        return tokens / self.tokens_per_s

    @property
    def cost_s(self) -> float:
        """What a first token takes besides, as far as is known."""
        return self._line.cost_s

    def learn(self, tokens: int, took_s: float) -> None:
        """One prefill of so many uncached tokens took that long."""
        if self._on_learnt is None:
            return
        self._line.add(tokens, took_s)
        self._prefills += 1
        if self._prefills >= LEARNT_AFTER and self._prefills % COMPARED_EVERY == 0:
            self._on_learnt()

    def counted(self, rank: int, now: Prefills) -> None:
        """The counters of a rank's engine; those of another process begin anew."""
        before = self._counters.setdefault(rank, now)
        tokens, took_s = now.tokens - before.tokens, now.seconds - before.seconds
        prefills = 1.0
        if now.count is not None and before.count is not None:
            prefills = now.count - before.count
        if min(tokens, took_s, prefills) < 0:
            self._counters[rank] = now
        elif tokens and took_s and prefills >= 1:
            self._counters[rank] = now
            # Where they are not counted, all since the last look are taken for one.
            self._learn_counted(round(tokens / prefills), took_s / prefills, tokens)

    def _learn_counted(self, tokens: int, took_s: float, of: float) -> None:
        """Prefills of so many tokens `of` all that were counted took that long."""
        if self._on_learnt is None or tokens < LEAST_COUNTED_TOKENS:
            return
        self._counted.add(tokens, took_s)
        self._counted_tokens += of
        if self._prefills < LEARNT_AFTER and self.own is not None:
            self._on_learnt()


class Rates:
    """The rates of a fleet. Workers that are about equal have equal rates.

    Estimates differ a little between equal workers, and a router that believed them
    would send everything to the one that seems the fastest. So workers that are the
    same number of steps from the median of the fleet share one rate, the median of
    theirs. One that has not shown its speed is taken to be as fast as is usual.
    """

    def __init__(self, pinned: float | None = None) -> None:
        """`pinned` is the rate of all of them, and nothing is learnt."""
        self._pinned = pinned
        self._rates: list[PrefillRate] = []

    def add(self) -> PrefillRate:
        """The rate of one more worker."""
        if self._pinned is not None:
            return PrefillRate(self._pinned, source="pinned")
        rate = PrefillRate(on_learnt=self._compare)
        self._rates.append(rate)
        self._compare()
        return rate

    def remove(self, rate: PrefillRate) -> None:
        """Its worker is gone."""
        if rate in self._rates:
            self._rates.remove(rate)

    def _compare(self) -> None:
        learnt = [(rate, own) for rate in self._rates if (own := rate.own) is not None]
        if not learnt:
            return
        usual = statistics.median_low(own for _, own in learnt)
        alike: dict[int, list[float]] = {}
        for rate, own in learnt:
            steps = math.log(own / usual) / STEP
            if abs(steps - rate.step) > STAY:
                rate.step = round(steps)
            alike.setdefault(rate.step, []).append(own)
        for rate in self._rates:
            known = rate.own is not None
            rate.source = rate.own_source if known else "fleet"
            theirs = alike[rate.step] if known else [usual]
            rate.tokens_per_s = statistics.median_low(theirs)


class OutputLength:
    """Expected output tokens of a request: a running mean of finished ones."""

    __slots__ = ("mean",)

    def __init__(self, prior: float = OUTPUT_TOKENS_PRIOR) -> None:
        self.mean = prior

    def finished(self, completion_tokens: int) -> None:
        """Take in one finished answer (exponential mean, weight 0.05)."""
        self.mean += MEAN_WEIGHT * (completion_tokens - self.mean)

    def expected(self, max_tokens: int | None) -> int:
        """The mean, but never more than the request allows."""
        mean = int(self.mean)
        return mean if max_tokens is None else max(0, min(mean, max_tokens))
