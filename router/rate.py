"""What is known of a worker's speed and of how long answers are.

Estimates only; what is in flight is the ledger's business.
"""

PREFILL_RATE_PRIOR = 20_000.0
"""Prefill tokens per second of a worker nothing is known about."""

OUTPUT_TOKENS_PRIOR = 256.0
MEAN_WEIGHT = 0.05


class PrefillRate:
    """Prefill tokens per second of one worker. A constant from the configuration."""

    __slots__ = ("tokens_per_s",)

    def __init__(self, tokens_per_s: float = PREFILL_RATE_PRIOR) -> None:
        """Raise ValueError unless the rate is a positive, finite number."""
        if not 0 < tokens_per_s < float("inf"):
            raise ValueError(f"prefill rate must be positive, got {tokens_per_s}")
        self.tokens_per_s = tokens_per_s

    def seconds(self, tokens: float) -> float:
        """Time to prefill that many tokens."""
        return tokens / self.tokens_per_s


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
