"""Who is there, by one source: whom to use, whom to drain, whom to let go.

What is not ready yet is not used. What was, and is not any more, is drained: its cache
is still known when it is ready again. What vanished is drained for a moment, too, as it
may only be on its way from one list to another.
"""

from collections.abc import Mapping

import msgspec

LINGER_S = 3.0


class Present(msgspec.Struct, frozen=True):
    """One that is there: is it ready, and which process is it, where that is known."""

    ready: bool = True
    identity: str | None = None


class Roster:
    """The addresses of one source. No clock and no I/O."""

    def __init__(self, linger_s: float) -> None:
        self.linger_s = linger_s
        self._present: dict[str, Present] = {}
        """Those that are there, and have been ready."""
        self._vanished: dict[str, float] = {}
        self._identities: dict[str, str] = {}

    def update(self, present: Mapping[str, Present], now: float) -> set[str]:
        """These are there now, by URL; those among them that are others than before."""
        for url in self._present:
            if url not in present:
                self._vanished[url] = now
        known = self._present.keys() | self._vanished.keys()
        others = {
            url
            for url, one in present.items()
            if url in known and self._is_other(url, one)
        }
        known -= others
        self._present = {
            url: one for url, one in present.items() if one.ready or url in known
        }
        for url, one in self._present.items():
            self._vanished.pop(url, None)
            if one.identity is not None:
                self._identities[url] = one.identity
        for url in others - self._present.keys():
            self._vanished.pop(url, None)
        return others

    def _is_other(self, url: str, one: Present) -> bool:
        """Whether another process is there now: of one that is gone nothing is left."""
        return one.identity is not None and one.identity != self._identities.get(
            url, one.identity
        )

    def wanted(self, now: float) -> dict[str, bool]:
        """The workers there should be, by URL, and whether each is to be drained."""
        for url, since in list(self._vanished.items()):
            if now - since >= self.linger_s:
                del self._vanished[url]
                self._identities.pop(url, None)
        here = {url: not one.ready for url, one in self._present.items()}
        return here | dict.fromkeys(self._vanished, True)

    def due_s(self, now: float) -> float | None:
        """Seconds until one is let go; None: nobody is about to leave."""
        first = min(self._vanished.values(), default=None)
        return None if first is None else max(0.0, first + self.linger_s - now)
