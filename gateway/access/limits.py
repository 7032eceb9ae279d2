"""What one client may: requests per minute, and at a time.

Requests are counted as a bucket does it that refills steadily: after a pause a whole
minute's worth may come at once. No I/O; times are handed in.
"""

import math

from gateway.access.errors import RateLimited

MINUTE_S = 60.0
WAIT_S = 1.0
"""What a client with too many requests in flight is told to wait: nobody knows."""


class Limits:
    """The limits of one client, and how far they are used up."""

    def __init__(self) -> None:
        self.requests_per_minute: int | None = None
        self.max_inflight: int | None = None
        self.inflight = 0
        self._full_at = 0.0  # when the bucket is full again

    def take(self, now: float) -> None:
        """Count a request that begins; RateLimited where it is one too many."""
        if self.max_inflight is not None and self.inflight >= self.max_inflight:
            raise RateLimited(
                f"the key has {self.max_inflight} requests in flight, as many as it "
                "may",
                wait_s=WAIT_S,
                reason="inflight",
                headers=self.told(now),
            )
        limit = self.requests_per_minute
        if limit is not None:
            each = MINUTE_S / limit
            full_at = max(self._full_at, now) + each
            wait = full_at - now - MINUTE_S
            if wait > 1e-6:  # times are sums of fractions
                raise RateLimited(
                    f"rate limit reached: the key may send {limit} requests per minute",
                    wait_s=wait,
                    reason="rate",
                    headers=self.told(now),
                )
            self._full_at = full_at
        self.inflight += 1

    def release(self) -> None:
        """A request that was taken has ended."""
        self.inflight -= 1

    def told(self, now: float) -> tuple[tuple[str, str], ...]:
        """OpenAI's headers: the rate, what is left of it, when all of it is back."""
        limit = self.requests_per_minute
        if limit is None:
            return ()
        owed = max(0.0, self._full_at - now)
        left = max(0, math.floor((MINUTE_S - owed) * limit / MINUTE_S + 1e-6))
        return (
            ("x-ratelimit-limit-requests", str(limit)),
            ("x-ratelimit-remaining-requests", str(min(limit, left))),
            ("x-ratelimit-reset-requests", duration(owed)),
        )


def duration(seconds: float) -> str:
    """Seconds as OpenAI writes them: ``120ms``, ``1.5s``, ``6m0s``."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
