"""Where the body of a call ends: scans that look at each character once.

A scan is told the body as it comes, in pieces, and answers with the place in the piece
where the body ends, or None while it does not. `end` is asked at the answer's end.
"""

import re
from typing import Protocol

from render.parsers.marks import FIRST, MOST

MARKS = f"{chr(FIRST)}-{chr(FIRST + MOST - 1)}"


class Scan(Protocol):
    """Looks for the end of one call's body."""

    def find(self, piece: str) -> int | None:
        """The place in this piece where the body ends."""
        ...

    def end(self) -> bool:
        """Whether the body is whole at the answer's end, without a closing mark."""
        ...


class MarkScan:
    """To the first closing mark that is not between two others (a quoted value).

    `within` are the marks that such a value is between, twice the same one for quotes.
    A body ends with the answer, too, if that ends with a closing mark in a value whose
    own is missing.
    """

    def __init__(self, closers: str, within: str = "") -> None:
        self._closers = closers
        self._within = within
        self._inside = False
        self._closed = False  # in a value a closing mark was seen, and only space since
        self._marks = re.compile(f"[{re.escape(closers + within)}]")

    def find(self, piece: str) -> int | None:
        """The place of the closing mark."""
        for match in self._marks.finditer(piece):
            mark = match.group()
            if self._inside:
                self._inside = mark != self._within[1]
            elif self._within and mark == self._within[0]:
                self._inside = True
            elif mark in self._closers:
                return match.start()
        place = max(piece.rfind(closer) for closer in self._closers)
        closed = place >= 0 or self._closed
        self._closed = self._inside and closed and not piece[place + 1 :].strip()
        return None

    def end(self) -> bool:
        """Whether a closing mark was the last; a body without it was cut."""
        return self._closed


class JsonScan:
    """To a closing mark outside of strings, or to the end of one value.

    `quotes` are what strings are within (`'` too, in Python); `value` is whether the
    body ends where its outermost bracket closes.
    """

    def __init__(
        self, closers: str = "", *, quotes: str = '"', value: bool = False
    ) -> None:
        self._closers = closers
        self._quotes = quotes
        self._value = value
        self._quote = ""
        self._escaped = False
        self._depth = 0
        self._in_string = re.compile(rf"[^\\{quotes}]*")
        self._outside = re.compile(rf"[{quotes}{{}}\[\]()\\{MARKS}]")

    def find(self, piece: str) -> int | None:
        """The place of the closing mark, or after the value."""
        place = 0
        while place < len(piece):
            if self._escaped:
                self._escaped = False
                place += 1
            elif self._quote:
                place = self._through_string(piece, place)
            else:
                found = self._outside.search(piece, place)
                if found is None:
                    return None
                if found.group() in self._closers:
                    return found.start()
                place = found.end()
                if self._passes(found.group()):
                    return place
        return None

    def end(self) -> bool:
        """A body without its mark was cut, a value without its bracket too."""
        return False

    def _through_string(self, piece: str, place: int) -> int:
        found = self._in_string.match(piece, place)
        place = place if found is None else found.end()
        if place < len(piece):
            self._escaped = piece[place] == "\\"
            if piece[place] == self._quote:
                self._quote = ""
            place += 1
        return place

    def _passes(self, character: str) -> bool:
        """Take note of a character; whether the value ends with it."""
        if character in self._quotes:
            self._quote = character
        elif character in "{[(":
            self._depth += 1
        elif character in "}])":
            self._depth -= 1
            return self._value and self._depth <= 0
        return False


class FollowedScan:
    """To a closing mark that one of the followers comes after, or the answer's end.

    What looks like a closing mark in a value goes on with text.
    """

    def __init__(self, closers: str, followers: str) -> None:
        self._followers = followers
        self._closers = closers
        self._search = re.compile(f"[{re.escape(closers)}]")
        self._waits = False  # a closing mark was seen, and only space since

    def find(self, piece: str) -> int | None:
        """The place of the follower: the closing mark is a part of the body."""
        place = 0
        while place < len(piece):
            if self._waits:
                place = len(piece) - len(piece[place:].lstrip())
                if place == len(piece):
                    return None
                if piece[place] in self._followers:
                    return place
                self._waits = False
            found = self._search.search(piece, place)
            if found is None:
                return None
            self._waits = True
            place = found.end()
        return None

    def end(self) -> bool:
        """Whether the closing mark was the last."""
        return self._waits


class RestScan(JsonScan):
    """To the end of the answer, or to where the next call begins."""

    def end(self) -> bool:
        """The answer's end is its end."""
        return True
