"""Load in flight at one (worker, rank), as this gateway booked it.

Holds what was sent and not yet answered; it does not know what other clients of the
worker do. Every booking is released exactly once, whatever order its calls come in.
"""

import heapq
import itertools
import math
from collections.abc import Callable

PREFILL = 0
DECODE = 1
RELEASED = 2

RECENT_S = 60.0
"""What was booked weighs e times less after so long."""

MOST_GUESSED = 131_072
"""Tokens up to which a guess from the size of a body is credible: what most models
take. An image of 8 MB would be two million, and take minutes."""

SPARE_DUES = 64
"""Dues of bookings that ended early are kept up to this many before a clean-up."""


class Booking:
    """One request's share of a ledger: in prefill, then decoding, then released."""

    __slots__ = (
        "_ledger",
        "_stage",
        "credible_tokens",
        "output_tokens",
        "uncached_tokens",
    )

    def __init__(
        self,
        ledger: "Ledger",
        uncached_tokens: int,
        output_tokens: int,
        *,
        guessed: bool = False,
    ) -> None:
        self._ledger = ledger
        self._stage = PREFILL
        self.uncached_tokens = uncached_tokens
        self.output_tokens = output_tokens
        most = MOST_GUESSED if guessed else uncached_tokens
        self.credible_tokens = min(uncached_tokens, most)

    @property
    def in_prefill(self) -> bool:
        """Whether its prompt tokens still count."""
        return self._stage == PREFILL

    @property
    def released(self) -> bool:
        """Whether nothing of it counts any more."""
        return self._stage == RELEASED

    def first_token(self) -> None:
        """Prefill is over: decode work from here on. Later calls change nothing."""
        if self._stage == PREFILL:
            self._stage = DECODE
            self._ledger._prefilled(self)

    def release(self) -> None:
        """Take the request out of the ledger. Idempotent, allowed at any stage."""
        self.first_token()
        if self._stage == DECODE:
            self._stage = RELEASED
            self._ledger._released(self)


class Ledger:
    """Requests, uncached prompt tokens and expected output tokens in flight."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._uncached_tokens = 0
        self._credible_tokens = 0
        self._decode_tokens = 0
        self._dues: list[tuple[float, int, Booking]] = []
        self._order = itertools.count()
        self.requests = 0
        self._in_prefill: dict[Booking, None] = {}
        """In the order in which they were booked."""
        self._first_since = clock()
        """When the first of them became that: it is prefilled since then."""
        self._recent_tokens = 0.0
        self._recent_at = clock()
        self.last_turn = 0
        """The router's turn at which this rank was last chosen: ties rotate by it."""

    @property
    def uncached_tokens(self) -> int:
        """Uncached prompt tokens booked here whose prefill is not known to be over."""
        if self._dues:
            self._settle()
        return self._uncached_tokens

    @property
    def credible_tokens(self) -> int:
        """Of those, as many as there may well be: what was guessed is bounded."""
        if self._dues:
            self._settle()
        return self._credible_tokens

    @property
    def prefills(self) -> int:
        """Requests here whose prefill is not known to be over."""
        if self._dues:
            self._settle()
        return len(self._in_prefill)

    def done_tokens(self, tokens_per_s: float) -> float:
        """What should be prefilled by now of the first in flight, at that speed.

        All of it when it should be done. If it is not, the estimate was wrong: ever
        less is taken as done, as so much seems to be left as it is late.
        """
        if self._dues:
            self._settle()
        if not self._in_prefill:
            return 0.0
        tokens = next(iter(self._in_prefill)).uncached_tokens
        passed = (self._clock() - self._first_since) * tokens_per_s
        return max(0.0, tokens - abs(tokens - passed))

    @property
    def recent_tokens(self) -> float:
        """Uncached prompt and output tokens booked lately, less the longer ago."""
        age_s = self._clock() - self._recent_at
        return self._recent_tokens * math.exp(-age_s / RECENT_S)

    @property
    def decode_tokens(self) -> int:
        """Expected output tokens of the requests past their first token."""
        if self._dues:
            self._settle()
        return self._decode_tokens

    def book(
        self,
        uncached_tokens: int,
        output_tokens: int,
        *,
        prefill_s: float | None,
        guessed: bool = False,
    ) -> Booking:
        """Book a request about to be sent.

        `prefill_s` is given where no first token will be seen (the answer is not
        streamed): its prompt tokens stop counting after that many seconds. Where its
        size is `guessed`, it is credible up to a bound.
        """
        uncached_tokens, output_tokens = max(0, uncached_tokens), max(0, output_tokens)
        booking = Booking(self, uncached_tokens, output_tokens, guessed=guessed)
        self._uncached_tokens += booking.uncached_tokens
        self._credible_tokens += booking.credible_tokens
        work = booking.uncached_tokens + booking.output_tokens
        self._recent_tokens = self.recent_tokens + work
        self._recent_at = self._clock()
        if not self._in_prefill:
            self._first_since = self._recent_at
        self._in_prefill[booking] = None
        self.requests += 1
        if prefill_s is not None:
            due = (self._clock() + prefill_s, next(self._order), booking)
            heapq.heappush(self._dues, due)
        return booking

    def _settle(self) -> None:
        now = self._clock()
        while self._dues and self._dues[0][0] <= now:
            heapq.heappop(self._dues)[2].first_token()

    def _prefilled(self, booking: Booking) -> None:
        self._uncached_tokens -= booking.uncached_tokens
        self._credible_tokens -= booking.credible_tokens
        if booking is next(iter(self._in_prefill)):
            self._first_since = self._clock()
        del self._in_prefill[booking]
        self._decode_tokens += booking.output_tokens

    def _released(self, booking: Booking) -> None:
        self._decode_tokens -= booking.output_tokens
        self.requests -= 1
        if len(self._dues) > 2 * self.requests + SPARE_DUES:
            self._dues = [due for due in self._dues if due[2].in_prefill]
            heapq.heapify(self._dues)
