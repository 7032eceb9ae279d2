"""How fast a simulated engine is, and what it stores when. A record only."""

import msgspec

# Shorter ticks would cost more CPU than the whole simulated worker; a request then
# gets several tokens at once, as real engines' streams show it too.
MIN_TICK_S = 0.010


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the simulated hardware is. Rates are tokens/s before `speed`.

    `output_at_end`: what was generated is stored when a request is finished, not block
    by block; `tails`: its last block then too, though it is not full.
    """

    prefill_rate: float = 20_000.0
    decode_rate: float = 50.0
    prefill_cost_s: float = 0.015
    max_running: int = 64
    max_step_tokens: int = 8192
    speed: float = 1.0
    min_tick_s: float = MIN_TICK_S
    output_at_end: bool = False
    tails: bool = False

    @property
    def tick_s(self) -> float:
        """Seconds between two decode ticks."""
        return max(1.0 / (self.decode_rate * self.speed), self.min_tick_s)
