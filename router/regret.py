"""When a prefix deserves one more copy: when waiting for it has cost more than that.

A worker that holds a prefix gets the requests that share it, until they would wait
there so long that computing it anew elsewhere is cheaper for one of them. Waiting a
little less than that, request after request, costs more in the end than one more copy:
rent or buy. So what each of them waits longer than it would at the least loaded worker
is added up per prefix, and where the sum exceeds the price of a copy many times over,
the next one goes there, and the prefix is then held at one place more.

The first copy takes the longest to justify, for a burst of siblings is no lasting
demand; each further one takes half of that.
"""

from collections import OrderedDict

import msgspec

FIRST_FACTOR = 3
LEAST_FACTOR = 2.0
PREFIXES = 4_096
"""Prefixes remembered; those waited for longest ago are forgotten first."""


class _Wait(msgspec.Struct, frozen=True, gc=False):
    seconds: float = 0.0
    factor: float = FIRST_FACTOR
    at: float = -1e9


_NONE = _Wait()


class Regrets:
    """Seconds waited for prefixes, by the hash of their last held block."""

    def __init__(self, prefixes: int = PREFIXES) -> None:
        self._prefixes = prefixes
        self._waits: OrderedDict[int, _Wait] = OrderedDict()

    def __len__(self) -> int:
        """Prefixes that have been waited for."""
        return len(self._waits)

    def due(self, prefix: int, wait_s: float, price_s: float) -> bool:
        """Whether a request that would wait `wait_s` longer for it is to pay a copy."""
        known = self._waits.get(prefix, _NONE)
        return known.seconds + wait_s > known.factor * price_s

    def waited(self, prefix: int, wait_s: float, now: float, price_s: float) -> None:
        """A request was sent to wait so much longer than it had to."""
        known = self._waits.get(prefix, _NONE)
        import os
        if now - known.at < price_s * float(os.environ.get("WIN", "1")): return
        self._note(prefix, _Wait(known.seconds + wait_s, known.factor, now))

    def paid(self, prefix: int) -> None:
        """A request was sent to make a copy."""
        known = self._waits.get(prefix, _NONE)
        self._note(prefix, _Wait(0.0, max(LEAST_FACTOR, known.factor / 2)))

    def _note(self, prefix: int, wait: _Wait) -> None:
        self._waits[prefix] = wait
        self._waits.move_to_end(prefix)
        if len(self._waits) > self._prefixes:
            self._waits.popitem(last=False)
