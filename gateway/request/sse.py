"""Server-sent events: cut a stream of bytes where whole events end. No I/O.

Clients exist that lose a stream when a read ends inside an event, so events are
passed on whole. Bytes are never changed, and never decoded: a character may come in
two reads. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.error_shapes import api_of, event_body_of
from gateway.errors import GatewayError

MAX_HELD = 1 << 20
"""Bytes of an unfinished event that are held; a longer event passes as it comes."""

KEPT = 64 * 1024
"""Bytes of the last events that are kept, to tell how a stream ended."""

DONE = b"[DONE]"
_ENDS = (b"message_stop", b"response.completed", b"response.incomplete")
"""The last events of `/v1/messages` and `/v1/responses`."""
_MAY_END = (DONE, *_ENDS)
_FAILURES = frozenset({b"error", b"response.failed"})
"""The last events there of a stream that failed."""

LINE = re.compile(rb"\r\n|\r|\n")
BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
# A blank line, in bytes of any mix of CR, LF and CRLF. Each ends where it ends.
_BLANK_LINES = (b"\n\n", b"\n\r\n", b"\r\r", b"\n\r")


class WholeEvents:
    """Holds back the unfinished event at the end of what has come.

    `feed` gives the bytes to pass on now, `rest` what is still held at the end.
    """

    __slots__ = ("_held", "_last", "_max_held", "inside")

    def __init__(self, *, max_held: int = MAX_HELD) -> None:
        self._max_held = max_held
        self._held = bytearray()
        self._last = b""
        self.inside = False
        """The beginning of an event has been passed on without its end."""

    def feed(self, data: bytes) -> bytes:
        """Take `data`; return what ends with a whole event, maybe nothing."""
        if data.endswith(b"\n\n") and not self._held:  # nearly always
            if self.inside or len(data) > KEPT or not data.startswith(b"data:"):
                return self._pass(data)
            self._last = data
            return data
        searched = max(0, len(self._held) - 2)
        self._held += data
        end = _last_end(self._held, searched)
        if end > 0:
            out = bytes(memoryview(self._held)[:end])
            del self._held[:end]
            return self._pass(out)
        if self.inside or len(self._held) > self._max_held:
            return self._pass_unfinished()
        return b""

    def rest(self) -> bytes:
        """What is still held: the unfinished event of a stream that ended well."""
        out = bytes(self._held)
        self._held.clear()
        return out

    @property
    def done(self) -> bool:
        """The last event is one after which nothing is missing.

        A ``data: [DONE]`` without its blank line has said all that it had to.
        """
        if self.inside:
            return False
        held = bytes(self._held) if len(self._held) <= KEPT else b""
        return _is_end(self._last) or (DONE in held and _data(held) == DONE)

    @property
    def broken_off(self) -> bool:
        """Nothing more comes, and an event has begun that is not whole."""
        if self.inside or not self._held.strip(b"\r\n"):
            return self.inside
        return not self.done

    @property
    def failed(self) -> bool:
        """The last event passed on, but for comments, is an error: clients close."""
        said = [one for one in _with_data(self._last) if _data(one) != DONE]
        if not said or self.inside:
            return False
        told = _object(said[-1])
        names = _names(said[-1], told)
        return bool(told.get("error")) or not names.isdisjoint(_FAILURES)

    def error_event(self, error: GatewayError, path: str = "") -> bytes:
        """The one event that ends a broken stream. What is held is dropped.

        The `path` of the request tells what its client takes for an error.
        """
        self._held.clear()
        said = _with_data(self._last)
        number = _object(said[-1]).get("sequence_number") if said else None
        following = number + 1 if isinstance(number, int) else 0
        ended = b"\n\n" if self.inside else b""
        return ended + error_event(error, path, following)

    def _pass_unfinished(self) -> bytes:
        if not self.inside:
            self._last = bytes(self._held[:KEPT])
        self.inside = True
        out = bytes(self._held).rstrip(b"\r\n")  # line ends may begin a blank line
        del self._held[: len(out)]
        return out

    def _pass(self, out: bytes) -> bytes:
        after = out
        if self.inside:  # the beginning is kept of what ends here
            self.inside = False
            after = BLANK.split(out, maxsplit=1)[-1]
        if has_data(after):
            # Of an event too long to be kept the beginning has its name.
            short = len(after) <= KEPT
            self._last = after if short else _with_data(after)[-1][:KEPT]
        return out


def error_event(error: GatewayError, path: str = "", number: int = 0) -> bytes:
    """An error as an event, at which the clients of that path raise.

    Those of chats raise where the data has an `error`, Anthropic's only where the event
    is called one, OpenAI's of responses at either.
    """
    name = b"event: error\n" if api_of(path) else b""
    return b"%bdata: %b\n\n" % (name, event_body_of(error, path, number))


def event(data: bytes) -> bytes:
    """One event that says this."""
    return b"data: " + data + b"\n\n"


def data_of(events: bytes) -> Iterator[bytes]:
    """What whole events say; comments and other fields are passed over."""
    for one in BLANK.split(events):
        if lines := _values(one, b"data:"):
            yield b"\n".join(lines).strip()


def has_data(events: bytes) -> bool:
    """Whether there is an event with data in it, not only comments."""
    return events.startswith(b"data:") or b"\ndata:" in events or b"\rdata:" in events


def _last_end(held: bytearray, start: int) -> int:
    """Where the last blank line ends, looking from `start` on; 0 if there is none."""
    ends = [held.rfind(line, start) + len(line) for line in _BLANK_LINES]
    found = [e for e, line in zip(ends, _BLANK_LINES, strict=True) if e >= len(line)]
    return max(found, default=0)


def _values(one: bytes, field: bytes) -> list[bytes]:
    """The values of a field in the lines of an event."""
    return [
        line.removeprefix(field).removeprefix(b" ")
        for line in LINE.split(one)
        if line.startswith(field)
    ]


def _data(one: bytes) -> bytes:
    return b"\n".join(_values(one, b"data:")).strip()


def _with_data(events: bytes) -> list[bytes]:
    return [one for one in BLANK.split(events) if has_data(one)]


def _is_end(events: bytes) -> bool:
    """Whether the last of these events, but for comments, ends a stream well."""
    if not any(word in events for word in _MAY_END):
        return False  # nearly always; nothing is parsed for it
    for last in _with_data(events)[-1:]:
        names = _names(last, _object(last))
        return _data(last) == DONE or not names.isdisjoint(_ENDS)
    return False


def _object(one: bytes) -> dict[str, Any]:
    """What an event says, where that is an object."""
    try:
        return msgspec.json.decode(_data(one), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _names(one: bytes, told: dict[str, Any]) -> set[bytes]:
    """What an event is called, by its field and by the object in it."""
    kind = told.get("type")
    said = {kind.encode("utf-8", "replace")} if isinstance(kind, str) else set()
    return said.union(value.strip() for value in _values(one, b"event:"))
