"""The addresses of one name as its answers tell them. No I/O.

Answers may have a part of the addresses, each time another, and servers that are in
trouble answer with none. So an address goes only after several answers without it, and
all of them only after many without any. An answer that failed tells nothing.
"""

from collections.abc import Iterable

MISSED = 3
"""Answers in a row without an address until it is gone."""
EMPTY = 12
"""Answers in a row without any until all are gone."""


class Answers:
    """What is to be made of one answer after another."""

    def __init__(self) -> None:
        self._missed: dict[str, int] = {}
        """By address: the latest answers without it."""
        self._empty = 0

    @property
    def addresses(self) -> list[str]:
        """Those that count now."""
        return list(self._missed)

    def take(self, addresses: Iterable[str]) -> None:
        """An answer: those of IPv4 or, where there are none, of IPv6.

        A host of both would be two workers else.
        """
        found = sorted(set(addresses))
        found = [a for a in found if ":" not in a] or found
        if not found:
            self._empty += 1
            if self._empty >= EMPTY:
                self._missed.clear()
            return
        self._empty = 0
        for address in self._missed:
            self._missed[address] += 1
        self._missed |= dict.fromkeys(found, 0)
        self._missed = {a: n for a, n in self._missed.items() if n < MISSED}
