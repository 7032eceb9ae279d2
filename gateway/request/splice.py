"""Token ids into the bytes of a client's body, the rest of which stays as it is.

Where a field goes is found once per field (`place`); bodies are JSON objects that were
decoded before, so nothing is validated. What engine takes ids in which field, and
whether they may go at all, is decided elsewhere.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kvindex.blocks import ID_BYTES, unpack_ids

SLICE_IDS = 8192
"""Ids written in one go: about half a millisecond that holds the GIL."""

SCANNED_BYTES = 256 * 1024
"""Of a body at most: a tenth of a second."""

SPACE = b" \t\r\n"
_COLON = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_ASCII_ESCAPE = re.compile(rb"\\u00[2-7]")
"""How else a character of a field's name can be written."""
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]', re.DOTALL)


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """Ids go between `before` and `after`, in place of the bytes `start` to `end`."""

    start: int
    end: int
    before: bytes
    after: bytes

    def apply(self, body: bytes, ids: bytes) -> bytes:
        """The body with `ids`, a JSON list, in it."""
        view = memoryview(body)
        parts = (view[: self.start], self.before, ids, self.after, view[self.end :])
        return b"".join(parts)


def encoded(token_ids: bytes) -> bytes:
    """Token ids (u32 little-endian) as a JSON list."""
    step = SLICE_IDS * ID_BYTES
    pieces = (
        msgspec.json.encode(unpack_ids(token_ids[at : at + step]))[1:-1]
        for at in range(0, len(token_ids), step)
    )
    return b"[" + b",".join(pieces) + b"]"


def place(
    body: bytes, decoded: Mapping[str, object], field: Sequence[str]
) -> Edit | None:
    """Where ids go: `field` is one name, or the name of an object and one in it.

    An object that is there is added to, one that is null replaced. None where the
    client uses the field itself, or names the object twice or in a spelling of its own:
    which of them an engine reads is its own secret.
    """
    name, *rest = field
    if name not in decoded:
        return _append(body, 0, len(body), field, empty=not decoded)
    where = _only_value(body, name) if rest else None
    if where is None:
        return None
    start, end = where
    value = decoded[name]
    if value is None:
        before, after = _member(rest)
        return Edit(start=start, end=end, before=b"{" + before, after=after + b"}")
    if not isinstance(value, dict) or rest[0] in value:
        return None
    return _append(body, start, end, rest, empty=not value)


def _append(
    body: bytes, start: int, end: int, field: Sequence[str], *, empty: bool
) -> Edit:
    """A last member for the object from `start` to `end`."""
    at = body.rindex(b"}", start, end)
    before, after = _member(field)
    comma = b"" if empty else b","
    return Edit(start=at, end=at, before=comma + before, after=after)


def _member(field: Sequence[str]) -> tuple[bytes, bytes]:
    """What is around the ids in a member of that name, or names."""
    names = [msgspec.json.encode(name) + b":" for name in field]
    return b"{".join(names), b"}" * (len(names) - 1)


def _only_value(body: bytes, name: str) -> tuple[int, int] | None:
    """Start and end of the value of a top-level member that is there once.

    None also where it takes too long to be sure of that.
    """
    key = msgspec.json.encode(name)
    if _ASCII_ESCAPE.search(body) is None and body.count(key) == 1:
        # It has no other spelling, and nothing else looks like it.
        colon = _COLON.match(body, body.index(key) + len(key))
        value = msgspec.json.decode(body, type=dict[str, msgspec.Raw])[name]
        return (colon.end(), colon.end() + len(value)) if colon is not None else None
    if len(body) > SCANNED_BYTES:
        return None
    found = []
    for key, start, end in _members(body):
        if msgspec.json.decode(key, type=str) == name:
            if b"\\" in key:
                return None
            found.append((start, end))
    return found[0] if len(found) == 1 else None


def _members(body: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The members of the outermost object: key in its quotes, start, end of value."""
    depth, key, start = 0, b"", -1
    for match in _MARK.finditer(body):
        mark = match[0]
        if depth == 1:
            if start < 0:
                if mark == b":":
                    start = match.end()
                elif mark != b",":
                    key = mark
            elif mark in (b",", b"}"):
                yield (key, *_trimmed(body, start, match.start()))
                start = -1
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1


def _trimmed(body: bytes, start: int, end: int) -> tuple[int, int]:
    value = body[start:end]
    return end - len(value.lstrip(SPACE)), start + len(value.rstrip(SPACE))
