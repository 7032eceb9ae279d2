"""Large JSON read in steps: the items of a list in runs, an object without its lists.

Nothing large is ever decoded whole. Regular expressions find where a run of whole items
ends; that it is JSON is left to the decoder.
"""

import re
from collections.abc import Iterator

import msgspec
from msgspec import json

STEP_BYTES = 32 * 1024
"""What is looked at in one step: well under a millisecond."""
_LONG = 8
"""Steps that one item may have."""
_LEVELS = 8
"""Lists and objects in one another that are still passed over at once."""
_DEPTH = 64
"""So many are followed at all."""
_SHELL_BYTES = 256 * 1024
"""An object has less beside its large lists, as that is decoded at once."""

_LIST = json.Decoder(list[msgspec.Raw])
_GAP = rb"[ \t\r\n]*+"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'


def _nested(flat: bytes) -> bytes:
    pattern = b"(?!)"
    for _ in range(_LEVELS):
        pattern = rb"[\[{](?:%b|%b)*+[\]}]" % (flat, pattern)
    return pattern


_VALUE = rb'(?:[^\s,:"\[\]{}]++|%b|%b)' % (
    _STRING,
    _nested(rb'[^"\[\]{}]++|' + _STRING),
)
_QUICK_VALUE = rb"(?:[^,\[\]{}]++|%b)" % _nested(rb"[^\[\]{}]++")
"""Right unless a string has a comma or a bracket."""
_RUN = rb"(?:%b%b%b(?:,|(?=[\]}])))*+"
_SPACE = re.compile(_GAP)
_COMMA = re.compile(_GAP + b",?")
_ITEMS = re.compile(_RUN % (_GAP, _VALUE, _GAP), re.DOTALL)
_QUICK_ITEMS = re.compile(_RUN % (_GAP, _QUICK_VALUE, _GAP), re.DOTALL)
_KEY = re.compile(rb"%b%b%b:%b" % (_GAP, _STRING, _GAP, _GAP), re.DOTALL)
_FIELDS = re.compile(_RUN % (_KEY.pattern, _VALUE, _GAP), re.DOTALL)


def skip_space(text: bytes | bytearray | memoryview, at: int) -> int:
    """Where the next token begins, unless that is further than a step."""
    return _SPACE.match(text, at, at + STEP_BYTES).end()  # type: ignore[union-attr]


def skip_comma(text: bytes | bytearray | memoryview, at: int) -> int:
    """Behind a comma, if one is next."""
    return _COMMA.match(text, at, at + STEP_BYTES).end()  # type: ignore[union-attr]


def read_items(
    text: bytes | bytearray | memoryview, at: int, size: int = STEP_BYTES
) -> tuple[list[msgspec.Raw], int]:
    """The items of a list from `at` on that end within `size` bytes.

    And where the next begins. None where the first is longer, or the list ends there.
    Raises what a JSON decoder raises.
    """
    end = _QUICK_ITEMS.match(text, at, at + size).end()  # type: ignore[union-attr]
    try:
        if end > at:
            return _LIST.decode(as_list(text, at, end)), end
    except msgspec.DecodeError:  # some string has a bracket
        pass
    end = _ITEMS.match(text, at, at + size).end()  # type: ignore[union-attr]
    return _LIST.decode(as_list(text, at, end)) if end > at else [], end


def as_list(text: bytes | bytearray | memoryview, start: int, end: int) -> bytes:
    """A run of items as a list of its own."""
    if text[end - 1 : end] == b",":
        end -= 1
    return b"".join((b"[", memoryview(text)[start:end], b"]"))


class Walk:
    """One object, from its brace on. After all `steps`, `end` is where it ends.

    `shell` is the object without the items of its large lists; `lists` has where runs
    of these items begin and end, by the keys that lead to the list. A large item of a
    list is in the shell instead.
    """

    def __init__(
        self, text: bytes | bytearray | memoryview, at: int, size: int = STEP_BYTES
    ) -> None:
        self.end = at
        self.shell = bytearray()
        self.lists: dict[tuple[bytes, ...], list[tuple[int, int]]] = {}
        self._text = text
        self._size = size
        self._keys: list[bytes] = []
        self._open = bytearray()
        """The brackets that are open; each after the first has a key."""

    def steps(self) -> Iterator[None]:
        """Go on from step to step; raises ValueError where it is no object."""
        self._enter()
        while self._open:
            yield
            start, key = self.end, b""
            if self._open.endswith(b"["):
                self._pass_items()
            else:
                key = self._pass_fields()
            if self.end > start and not key:
                continue
            self.end = skip_space(self._text, self.end)
            following = self._text[self.end : self.end + 1]
            if following in (b"[", b"{"):
                self._keys.append(key)
                self._enter()
            elif following in (b"]", b"}") and not key:
                self._leave()
            else:
                raise ValueError("no JSON")

    def _enter(self) -> None:
        if len(self._open) == _DEPTH:
            raise ValueError("too deep")
        opening = self._text[self.end : self.end + 1]
        if self._open.endswith(b"[") and not self.shell.endswith(b"["):
            self.shell += b","
        self._open += opening
        if opening == b"[":
            self.lists[tuple(self._keys)] = []  # of two of one name the last counts
        self._take(self.end + 1)

    def _leave(self) -> None:
        self._open.pop()
        self._take(self.end + 1)
        if self._open:
            self._keys.pop()
            following = skip_comma(self._text, self.end)
            if self._open.endswith(b"["):  # what follows may not be in the shell
                self.end = following
            else:
                self._take(following)

    def _take(self, end: int) -> None:
        if len(self.shell) > _SHELL_BYTES:
            raise ValueError("too large")
        self.shell += memoryview(self._text)[self.end : end]
        self.end = end

    def _pass_items(self) -> None:
        start = self.end
        for limit in (self._size, self._size * _LONG):
            _, self.end = read_items(self._text, start, limit)
            if self.end > start:
                break
        if self.end > start:
            self.lists[tuple(self._keys)].append((start, self.end))

    def _pass_fields(self) -> bytes:
        """Pass whole ones, or one long one; and the key of a large value: that key."""
        start, key = self.end, None
        for limit in (start + self._size, start + self._size * _LONG):
            found = _FIELDS.match(self._text, start, limit)
            self._take(found.end())  # type: ignore[union-attr]
            key = _KEY.match(self._text, self.end, limit)
            if key and self._text[key.end() : key.end() + 1] in (b"[", b"{"):
                self._take(key.end())
                return key[0].rstrip(b" \t\r\n:").lstrip()
            if self.end > start:
                break
        return b""
