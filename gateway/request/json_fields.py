"""Where the top-level fields of a large JSON object are, found without decoding it.

A JSON decoder holds the event loop for as long as a body is long. This scan looks
only at quotes and brackets, in slices, and gives the loop back in between. It does
not validate: the values it finds are decoded by whoever wants them.
"""

import asyncio
import codecs
import re
import time

SLICE_S = 0.001
"""Seconds of scanning between two turns of the event loop."""

BUDGET_S = 0.25
"""Seconds of scanning in all; a body with more structure than that is given up."""

MAX_DEPTH = 1000
"""Brackets within brackets; a body deeper than that is given up."""

NOT_JSON = "not_json"

_WINDOW = 4 * 1024 * 1024  # bytes one search may run over: about a millisecond
_MARK = re.compile(rb'["\[\]{},]')
_SPACE = re.compile(rb"\s{0,4096}")
_BACKSLASH = ord("\\")
_MAX_BACKSLASHES = 10_000  # in a row


async def top_level(
    body: bytes, *, names: frozenset[str], within: tuple[int, int] | None = None
) -> dict[str, tuple[int, int]] | str:
    """Start and end of the value of each top-level field in `names`.

    Those of an object `within` the body, from a start to an end, if that is given. Of a
    repeated field the last counts. A string instead of a dict says why there is none:
    ``not_object``, ``not_json``, ``too_deep`` or ``too_complex``.
    """
    scan = _Scan(body, names, *(within or (0, None)))
    spent = 0.0
    while spent < BUDGET_S:
        began = time.perf_counter()
        if scan.run(began + SLICE_S):
            return scan.problem or scan.found
        spent += time.perf_counter() - began
        await asyncio.sleep(0)
    return "too_complex"


class _Scan:
    """The state of one scan. At depth 1 it is between the object's own brackets."""

    STEPS = 256  # marks looked at between two looks at the clock

    def __init__(
        self,
        body: bytes,
        names: frozenset[str],
        start: int = 0,
        end: int | None = None,
    ) -> None:
        self.found: dict[str, tuple[int, int]] = {}
        self.problem = ""
        self.finished = False
        self._body = body
        self._names = {name.encode(): name for name in names}
        self._end = len(body) if end is None else end
        self._at = start
        self._depth = 0
        self._key: bytes | None = None
        self._value_at = 0
        self._in_string = False
        self._string_at = 0
        marked = body.startswith(codecs.BOM_UTF8, start)
        first = self._skip_space(start + len(codecs.BOM_UTF8) * marked)
        if body[first : first + 1] != b"{":
            self._stop("not_object")

    def run(self, until: float) -> bool:
        """Scan until the clock says `until`; True once there is nothing left."""
        while not self.finished and time.perf_counter() < until:
            self._steps()
        return self.finished

    def _steps(self) -> None:
        """Some hundred marks, or one window of a long string."""
        for _ in range(self.STEPS):
            if self.finished:
                return
            end = min(self._at + _WINDOW, self._end)
            at = self._quote(end) if self._in_string else self._mark(end)
            if at < 0:
                self._at = end
                if end >= self._end:
                    self._stop(NOT_JSON)
                return
            self._at = at + 1
            if not self._in_string:
                self._see(self._body[at : at + 1])
            elif self._ends_string(at):
                self._end_string(at)

    def _quote(self, end: int) -> int:
        return self._body.find(b'"', self._at, end)

    def _mark(self, end: int) -> int:
        mark = _MARK.search(self._body, self._at, end)
        return mark.start() if mark else -1

    def _ends_string(self, at: int) -> bool:
        """Whether the quote at `at` is not escaped."""
        first = at
        while first > self._string_at and self._body[first - 1] == _BACKSLASH:
            first -= 1
            if at - first > _MAX_BACKSLASHES:
                self._stop("too_complex")
                break
        return (at - first) % 2 == 0

    def _end_string(self, at: int) -> None:
        self._in_string = False
        if self._depth == 1 and self._key is None:
            self._key = self._body[self._string_at : at]
            self._see_colon()

    def _see_colon(self) -> None:
        colon = self._skip_space(self._at)
        if self._body[colon : colon + 1] != b":":
            self._stop(NOT_JSON)
            return
        self._at = self._value_at = self._skip_space(colon + 1)

    def _see(self, mark: bytes) -> None:
        if mark == b'"':
            self._in_string, self._string_at = True, self._at
        elif mark in b"[{":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                self._stop("too_deep")
        elif mark == b",":
            if self._depth == 1:
                self._end_value()
        else:
            self._depth -= 1
            if self._depth == 0:
                self._end_value()
                whole = self._skip_space(self._at) >= self._end
                self._stop("" if whole and mark == b"}" else NOT_JSON)

    def _end_value(self) -> None:
        name = self._names.get(self._key) if self._key else None
        if name is not None:
            end = self._at - 1
            while self._body[end - 1 : end].isspace():
                end -= 1
            self.found[name] = (self._value_at, end)
        self._key = None

    def _skip_space(self, at: int) -> int:
        space = _SPACE.match(self._body, at)
        return space.end() if space else at

    def _stop(self, problem: str) -> None:
        self.problem = problem
        self.finished = True
