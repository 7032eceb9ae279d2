"""Who is there, by one source: whom to use, whom to drain, whom to let go.

What is not ready yet is not used. What was, and is not any more, is drained: its cache
is still known when it is ready again. What vanished is drained for a moment, too, as it
may only be on its way from one list to another.
"""

from collections.abc import Mapping

LINGER_S = 3.0


class Roster:
    """The addresses of one source. No clock and no I/O."""

    def __init__(self, linger_s: float) -> None:
        self.linger_s = linger_s
        self._present: dict[str, bool] = {}
        """Whether it is to be drained, by URL, of those that are there."""
        self._vanished: dict[str, float] = {}

    def update(self, present: Mapping[str, bool], now: float) -> None:
        """These are there now, by URL, and whether each is ready."""
        for url in self._present:
            if url not in present:
                self._vanished[url] = now
        known = self._present.keys() | self._vanished.keys()
        self._present = {
            url: not ready for url, ready in present.items() if ready or url in known
        }
        for url in self._present:
            self._vanished.pop(url, None)

    def wanted(self, now: float) -> dict[str, bool]:
        """The workers there should be, by URL, and whether each is to be drained."""
        for url, since in list(self._vanished.items()):
            if now - since >= self.linger_s:
                del self._vanished[url]
        return self._present | dict.fromkeys(self._vanished, True)

    def due_s(self, now: float) -> float | None:
        """Seconds until one is let go; None: nobody is about to leave."""
        first = min(self._vanished.values(), default=None)
        return None if first is None else max(0.0, first + self.linger_s - now)
