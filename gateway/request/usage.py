"""The token counts a worker reports, found in its answer as it passes by.

A JSON answer carries one ``usage`` object, an event stream none, one at its end, or
one in every event (each replacing the one before). Both are searched as bytes: an
object after the key ``"usage"`` counts. Within a JSON string the quotes around a key
would be escaped, so text that mentions usage is not taken for it.

Shapes: chat and completions ``{prompt_tokens, completion_tokens,
prompt_tokens_details: {cached_tokens}}``, responses ``{input_tokens, output_tokens,
input_tokens_details: {cached_tokens}}``; every part may be null or missing.
"""

import re
from typing import Any

import msgspec

from router.request import Usage

MAX_OBJECT = 4096
"""Bytes looked at from the key on; a longer object is not read."""

TRIES = 8
"""Keys looked at in a piece, from its end on, until an object follows one."""

LARGEST_COUNT = 1 << 40
"""A number of tokens above this is none."""

_KEY = b'"usage"'
META_INFO = b'"meta_info"'
"""SGLang's own generate route has the counts under this key, without details."""
_COLON = re.compile(rb"\s*:\s*")
_FLAT = rb"\{[^{}]*\}"
_NESTED = rb"\{[^{}]*(?:" + _FLAT + rb"[^{}]*)*\}"
_OBJECT = re.compile(_NESTED)  # one level of objects within: no engine has more


class UsageScanner:
    """Feed it the body in pieces of any size; `usage` is the last one it saw.

    Holds a few KiB at most, and parses only when asked.
    """

    __slots__ = ("_found", "_key", "_tail")

    def __init__(self, key: bytes = _KEY) -> None:
        """`key` is that of the object, in quotes."""
        self._key = key
        self._tail = b""  # a key whose value is still coming, or a part of a key
        self._found = b""  # the last whole object, not parsed yet

    def feed(self, data: bytes) -> None:
        """Look at a further piece of the body."""
        if self._tail:
            data = self._tail + data
        elif self._key not in data and data.endswith(b"\n"):
            return  # most events: there is nothing to see
        self._tail = self._unfinished_key(data)
        end = len(data)
        for _ in range(TRIES):
            at = data.rfind(self._key, 0, end)
            if at < 0 or self._look(data, at):
                return
            end = at

    @property
    def usage(self) -> Usage | None:
        """The last usage seen, None where there was none to be read."""
        return _parse(self._found) if self._found else None

    def _look(self, data: bytes, at: int) -> bool:
        """Whether a whole object follows the key at `at`; it is kept then."""
        limit = at + MAX_OBJECT
        colon = _COLON.match(data, at + len(self._key), limit)
        value = colon.end() if colon else at + len(self._key)
        found = _OBJECT.match(data, value, limit) if colon else None
        if found:
            self._found = found[0]
            return True
        more_may_come = len(data) < limit
        if more_may_come and _may_become_object(data[at + len(self._key) :]):
            self._tail = data[at:]
        return False

    def _unfinished_key(self, data: bytes) -> bytes:
        end = data[-(len(self._key) - 1) :]
        quote = end.rfind(b'"')
        return end[quote:] if quote >= 0 and self._key.startswith(end[quote:]) else b""


def scanner_of(data: bytes) -> UsageScanner:
    """What reads the usage of an answer that begins like this."""
    told_apart = META_INFO in data and _KEY not in data
    return UsageScanner(META_INFO if told_apart else _KEY)


def _may_become_object(rest: bytes) -> bool:
    """Whether what follows a key, so far, may be the beginning of an object."""
    rest = rest.lstrip()
    value = rest[1:].lstrip()
    return not rest or (rest[:1] == b":" and (not value or value[:1] == b"{"))


def _parse(found: bytes) -> Usage | None:
    try:
        fields = msgspec.json.decode(found, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    prompt = _count(fields, "prompt_tokens", "input_tokens")
    if prompt is None:
        return None
    details = fields.get("prompt_tokens_details", fields.get("input_tokens_details"))
    cached = details if isinstance(details, dict) else fields
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_count(fields, "completion_tokens", "output_tokens") or 0,
        cached_tokens=_count(cached, "cached_tokens"),
    )


def _count(fields: dict[str, Any], *names: str) -> int | None:
    """The first of these fields that is a count."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if 0 <= value <= LARGEST_COUNT:
            return value
    return None
