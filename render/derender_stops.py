"""Stop strings in a text that comes in pieces: each character is looked at once."""

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
        self._kept = ""
        self._firsts = tuple({stop[0] for stop in self._stops})

    def feed(self, text: str, *, armed: bool = True) -> str | Stopped:
        """The text that is certain, or where it stops.

        While it is not `armed` (`min_tokens`), nothing stops, but may begin to.
        """
        if not self._stops:
            return text
        for place, character in enumerate(text):
            written = self._written(character)
            for offset, one in enumerate(written):
                index = self._step(one)
                if index is not None and armed:
                    inner = written[: offset + 1]
                    return self._stopped(text[:place], inner, self._stops[index])
        return self._certain(text)

    def end(self) -> str:
        """What was kept back, at the end of the answer."""
        kept, self._kept = self._kept, ""
        return kept

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

    def _stopped(self, before: str, inner: str, stop: str) -> Stopped:
        before, self._kept = self._kept + before, ""
        whole = before + inner
        if self._include:
            return Stopped(whole, stop)
        return Stopped(_cut(before, inner, len(stop), self._written), stop)

    def _certain(self, text: str) -> str:
        """All but the characters that may be the beginning of a stop string."""
        text = self._kept + text
        waiting = max(self._states)
        place = len(text)
        while waiting > 0 and place > 0:
            place -= 1
            waiting -= len(self._written(text[place]))
        self._kept = text[place:]
        return text[:place]


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
