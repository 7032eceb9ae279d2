"""What became of a finished request: the cached tokens predicted and delivered."""

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request: hit tokens predicted, best possible, and delivered.

    `delivered_hit_tokens` is None where the worker did not report any. `estimated`
    marks predictions from raw content, whose token counts are guesses.
    """

    prompt_tokens: int
    predicted_hit_tokens: int
    best_hit_tokens: int
    delivered_hit_tokens: int | None
    estimated: bool

    @property
    def uncached_tokens(self) -> int | None:
        """What the worker prefilled of the prompt, where that is more than a guess."""
        hits = self.delivered_hit_tokens
        if hits is None and self.estimated:
            return None
        return self.prompt_tokens - (
            self.predicted_hit_tokens if hits is None else hits
        )
