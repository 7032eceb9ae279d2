"""Stop strings in a text that comes in pieces: each character is looked at once."""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec


class Stopped(msgspec.Struct, frozen=True):
    """A stop string was found: what stands before it, or up to its end."""

    text: str
    stop: str


class StopStrings:
    """Finds the first stop string that is whole; keeps back what may become one.

    Where two end at the same place, the longer one counts. `written` is what stands
    for a character of the text: marks are looked through.
    """

    def __init__(
        self,
        stops: Sequence[str],
        *,
        include: bool = False,
        written: Callable[[str], str] = str,
    ) -> None:
        self._stops = sorted({stop for stop in stops if stop}, key=len, reverse=True)
        self._fallbacks = [_fallbacks(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._include = include
        self._written = written
        self._kept: deque[str] = deque()
        self._kept_length = 0  # as it is written
        self._firsts = tuple({stop[0] for stop in self._stops})

    def feed(self, text: str, *, armed: bool = True) -> str | Stopped:
        """The text that is certain, or where it stops.

        While it is not `armed` (`min_tokens`), nothing stops, but may begin to.
        """
        if not self._stops or self._is_harmless(text):
            return text
        for character in text:
            written = self._written(character)
            for offset, one in enumerate(written):
                index = self._step(one)
                if index is not None and armed:
                    return self._stopped(written[: offset + 1], self._stops[index])
            self._kept.append(character)
            self._kept_length += len(written)
        return self._certain()

    def end(self) -> str:
        """What was kept back, at the end of the answer."""
        kept = "".join(self._kept)
        self._kept.clear()
        return kept

    def _is_harmless(self, text: str) -> bool:
        """Whether nothing is begun, and nothing begins here; marks are not ASCII."""
        return (
            not self._kept
            and text.isascii()
            and not any(first in text for first in self._firsts)
        )

    def _step(self, character: str) -> int | None:
        """Go on by one character; which stop string it completes."""
        found = None
        for index, stop in enumerate(self._stops):
            state, fallbacks = self._states[index], self._fallbacks[index]
            while state and (state == len(stop) or stop[state] != character):
                state = fallbacks[state - 1]
            if stop[state] == character:
                state += 1
            self._states[index] = state
            if state == len(stop) and found is None:
                found = index
        return found

    def _stopped(self, inner: str, stop: str) -> Stopped:
        before = self.end()
        if self._include:
            return Stopped(before + inner, stop)
        return Stopped(_cut(before, inner, len(stop), self._written), stop)

    def _certain(self) -> str:
        """All but the characters that may be the beginning of a stop string."""
        waiting = max(self._states)
        certain = []
        while self._kept:
            length = len(self._written(self._kept[0]))
            if self._kept_length - length < waiting:
                break
            self._kept_length -= length
            certain.append(self._kept.popleft())
        return "".join(certain)


def _cut(before: str, inner: str, length: int, written: Callable[[str], str]) -> str:
    """The text without its last `length` characters, as they are written."""
    left = length - len(inner)
    if left < 0:
        return before + inner[:-length]
    place = len(before)
    while left > 0 and place > 0:
        place -= 1
        shown = written(before[place])
        if len(shown) > left:
            return before[:place] + shown[:-left]
        left -= len(shown)
    return before[:place]


def _fallbacks(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper suffix that is a prefix."""
    table = [0] * len(stop)
    length = 0
    for place in range(1, len(stop)):
        while length and stop[place] != stop[length]:
            length = table[length - 1]
        if stop[place] == stop[length]:
            length += 1
        table[place] = length
    return table
