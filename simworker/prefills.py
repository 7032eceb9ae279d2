"""What a simulated engine has prefilled: the counters that it publishes."""


class Prefills:
    """Prefills done, and the tokens and seconds that they and those under way took."""

    def __init__(self) -> None:
        self.count = 0
        self.tokens = 0
        self.seconds = 0.0

    def step(self, tokens: int, seconds: float) -> None:
        """A step of one, of so many uncached tokens."""
        self.tokens += tokens
        self.seconds += seconds
