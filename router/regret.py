"""When a prefix deserves one more copy: when waiting for it has cost more than that.

A worker that holds a prefix gets the requests that share it, until they would wait
there so long that computing it anew elsewhere is cheaper for one of them. Waiting a
little less than that, request after request, costs more in the end than one more copy:
rent or buy. So what each of them waits longer than it would at the least loaded worker
is added up per prefix, and where the sum exceeds the price of a copy, or twice that,
the next one goes there, and the prefix is then held at one place more. What it adds to
the load of a worker that has far more than its share counts as waiting, too.

A burst of siblings is no lasting demand: of those that come within half of the time a
copy takes, only the first counts, and none of the others makes a copy. The first copy
takes the longest to justify; a further one takes half of that.
"""

from collections import OrderedDict
from collections.abc import Callable

import msgspec

FIRST_FACTOR = 2.0
LEAST_FACTOR = 1.0
BURST_SHARE = 0.5
"""Of the time a copy takes: requests within it are one burst."""
PREFIXES = 4_096
"""Prefixes remembered; those waited for longest ago are forgotten first."""


class _Waited(msgspec.Struct, frozen=True, gc=False):
    """`seconds` waited for a prefix since its last copy; `at`: the last that counts."""

    seconds: float
    factor: float
    at: float


_NEVER = _Waited(0.0, FIRST_FACTOR, float("-inf"))


class Regrets:
    """Seconds waited for prefixes, by the hash of their last held block."""

    def __init__(self, clock: Callable[[], float], prefixes: int = PREFIXES) -> None:
        self._clock = clock
        self._prefixes = prefixes
        self._waited: OrderedDict[int, _Waited] = OrderedDict()

    def __len__(self) -> int:
        """Prefixes that have been waited for."""
        return len(self._waited)

    def due(self, prefix: int, longer_s: float, copy_s: float) -> bool:
        """Whether a request that would wait `longer_s` more for it is to pay a copy.

        `copy_s` is the time the copy takes.
        """
        known = self._waited.get(prefix, _NEVER)
        enough = known.seconds + longer_s > known.factor * copy_s
        return enough and not self._in_burst(known, copy_s)

    def waited(self, prefix: int, longer_s: float, copy_s: float) -> None:
        """A request was sent to wait so much longer than it had to."""
        known = self._waited.get(prefix, _NEVER)
        if not self._in_burst(known, copy_s):
            seconds = known.seconds + longer_s
            self._note(prefix, _Waited(seconds, known.factor, self._clock()))

    def paid(self, prefix: int) -> None:
        """A request was sent to make a copy."""
        known = self._waited.get(prefix, _NEVER)
        factor = max(LEAST_FACTOR, known.factor / 2)
        self._note(prefix, _Waited(0.0, factor, _NEVER.at))

    def _in_burst(self, known: _Waited, copy_s: float) -> bool:
        return self._clock() - known.at < BURST_SHARE * copy_s

    def _note(self, prefix: int, waited: _Waited) -> None:
        self._waited[prefix] = waited
        self._waited.move_to_end(prefix)
        if len(self._waited) > self._prefixes:
            self._waited.popitem(last=False)
