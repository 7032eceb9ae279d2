"""What a simulated engine has prefilled: the counters that it publishes."""


class Prefills:
    """Prefills done, and the tokens and seconds that they took; one at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.tokens = 0
        self.seconds = 0.0
        self._tokens, self._seconds = 0, 0.0

    def step(self, tokens: int, seconds: float) -> None:
        """A step of one, of so many uncached tokens."""
        self._tokens += tokens
        self._seconds += seconds

    def end(self) -> None:
        """It is done, and counts from now on."""
        self.count += 1
        self.tokens += self._tokens
        self.seconds += self._seconds
        self._tokens, self._seconds = 0, 0.0
