"""What a prefill takes, as a line over its tokens: a fixed cost and so much per token.

Least squares that forget: each prefill weighs 2 % less with every one that follows.
Long ones vary more, and count for less. One that took many times as long as expected
is an outlier and counts as if it had taken four times as long: a worker that is slower
is believed after a few, a hiccup is not.
"""

FORGET = 0.98
PRIOR_TOKENS = 1_024
PRIOR_WEIGHT = 0.02
"""Of one prefill: where all are short, a far point soon outweighs what they say, and
workers that got few seem as fast as it, while those that got many do not.
"""
COST_S = 0.01
"""The fixed cost that is believed until prefills of several lengths tell another."""
COST_WEIGHT = 0.3
SPREAD_TOKENS = 1_024
"""Tokens that double the variance of a prefill's time."""
OUTLIER = 4.0
OUTLIER_S = 0.02
LEAST_PER_TOKEN_S = 1e-8


class Line:
    """Seconds = `cost_s` + tokens x `per_token_s`."""

    def __init__(self, *, per_token_s: float) -> None:
        """`per_token_s` is believed at first."""
        self.cost_s = COST_S
        self.per_token_s = per_token_s
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._take(PRIOR_TOKENS, COST_S + PRIOR_TOKENS * per_token_s, PRIOR_WEIGHT)

    def seconds(self, tokens: int) -> float:
        """What a prefill of so many tokens is expected to take."""
        return self.cost_s + tokens * self.per_token_s

    def add(self, tokens: int, took_s: float) -> None:
        """Learn from one prefill."""
        took_s = min(took_s, OUTLIER * self.seconds(tokens) + OUTLIER_S)
        self._weight *= FORGET
        self._x *= FORGET
        self._y *= FORGET
        self._xx *= FORGET
        self._xy *= FORGET
        self._take(tokens, took_s, 1 / (1 + tokens / SPREAD_TOKENS))
        self._fit()

    def _take(self, x: int, y: float, weight: float) -> None:
        self._weight += weight
        self._x += weight * x
        self._y += weight * y
        self._xx += weight * x * x
        self._xy += weight * x * y

    def _fit(self) -> None:
        # One point at no tokens never fades: a line needs two.
        weight, y = self._weight + COST_WEIGHT, self._y + COST_WEIGHT * COST_S
        spread = weight * self._xx - self._x * self._x
        slope = (weight * self._xy - self._x * y) / spread if spread > 0 else 0.0
        cost_s = (y - slope * self._x) / weight
        if cost_s < 0:
            slope, cost_s = self._xy / self._xx, 0.0
        if slope > LEAST_PER_TOKEN_S:
            self.per_token_s, self.cost_s = slope, cost_s
