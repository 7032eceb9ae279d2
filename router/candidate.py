"""What a policy weighs: a place a request may go to, and what that would cost."""

import msgspec

from router.request import Rendering
from router.worker import Worker

DELAY_WEIGHT = 1
"""A prefill takes its own time, and as much again from those that wait behind it."""
LATE_WEIGHT = 3
"""The longer a worker is late, the longer it will be: as much again, three times."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One (worker, rank) a request may go to, with all a policy weighs. Tokens.

    `held_tokens` (by the index) and `history_tokens` are what is known of its cache,
    `hit_tokens` what is taken as held, each block in full; `guessed_tokens` come after
    them. `uncached_tokens` is the rest of the prompt, where blocks that are doubtful,
    offloaded or guessed count as held in part only.
    `inflight_tokens` are what this gateway has in flight there, `done_tokens` what of
    it should be prefilled by now, `others_tokens` what waits there besides and
    `others_decode_tokens` what it generates for others, by the worker's report;
    `kv_usage` is the share of its KV cache in use by that (None: it does not say, and
    is taken to use `usual_usage`, the mean of those that do), `full`: it has no room.
    `room_tokens` are what its cache takes before it pushes something out; None where
    its size is not known. `recent_tokens` are what was sent there lately,
    `output_tokens` what the answer is expected to have. `late_s`: so long the
    worker is overdue with first tokens or answers, while nothing comes from it.
    `tokens_per_s` is the prefill rate. `last_turn` grows with each choice.
    """

    worker: Worker
    rank: int
    rendering: Rendering | None
    prompt_tokens: int
    held_tokens: int
    history_tokens: int
    hit_tokens: int
    uncached_tokens: int
    inflight_tokens: int
    inflight_requests: int
    decode_tokens: int
    tokens_per_s: float
    last_turn: int
    guessed_tokens: int = 0
    recent_tokens: float = 0.0
    output_tokens: int = 0
    done_tokens: int = 0
    late_s: float = 0.0
    others_tokens: int = 0
    others_decode_tokens: int = 0
    kv_usage: float | None = None
    usual_usage: float = 0.0
    full: bool = False
    room_tokens: int | None = None

    @property
    def wait_s(self) -> float:
        """Seconds of prefill left before it, and what a late worker may take."""
        waiting = self.inflight_tokens - self.done_tokens + self.others_tokens
        return waiting / self.tokens_per_s + LATE_WEIGHT * self.late_s

    @property
    def booked_s(self) -> float:
        """The same, with what should be done of it by now."""
        return self.wait_s + self.done_tokens / self.tokens_per_s

    @property
    def prefill_s(self) -> float:
        """Seconds its own prefill would take."""
        return self.uncached_tokens / self.tokens_per_s

    @property
    def pushes_out(self) -> bool:
        """Whether what it would compute takes the place of something cached."""
        return self.room_tokens is not None and self.uncached_tokens > self.room_tokens

    @property
    def busy_s(self) -> float:
        """Seconds that what was sent there lately, and others have there, is worth.

        Up to twice as much, the more of its KV cache is in use. What is sent counts at
        once: of gateways that went to the emptiest by reports that are seconds old all
        would go to the same. And twice is enough: reports that make more of a
        difference have the load swing between workers (dividing by the free share did).
        """
        tokens = self.recent_tokens + self.others_decode_tokens
        return tokens / self.tokens_per_s * (1 + self.usage)

    @property
    def usage(self) -> float:
        """Share of its KV cache in use; what is usual where it does not say."""
        return self.usual_usage if self.kv_usage is None else self.kv_usage

    @property
    def decoding_tokens(self) -> int:
        """Expected output of what is being decoded there, whoever sent it."""
        return self.decode_tokens + self.others_decode_tokens

    @property
    def own_s(self) -> float:
        """Seconds that the request itself takes from all here."""
        return (1 + DELAY_WEIGHT) * self.prefill_s

    @property
    def delay_s(self) -> float:
        """Seconds that those behind it would wait for it."""
        return DELAY_WEIGHT * self.prefill_s

    @property
    def cost_s(self) -> float:
        """Seconds of prefill this request costs all here, itself included."""
        return self.wait_s + self.own_s

    @property
    def estimate_s(self) -> float:
        """Seconds until its prefill would be done, behind what is in flight."""
        return self.wait_s + self.prefill_s
