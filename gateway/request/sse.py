"""Server-sent events: cut a stream of bytes where whole events end. No I/O.

Clients exist that lose a stream when a read ends inside an event, so events are
passed on whole. Bytes are never changed, and never decoded: a character may come in
two reads. https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import re
from collections.abc import Iterator

import msgspec

from gateway.errors import GatewayError

MAX_HELD = 1 << 20
"""Bytes of an unfinished event that are held; a longer event passes as it comes."""

KEPT = 64 * 1024
"""Bytes of the last events that are kept, to tell how a stream ended."""

_FAILURES = ("error", "response.failed")
"""The types of events of `/v1/responses` that are the last of a stream that failed."""

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\][\r\n]*$")
LINE = re.compile(rb"\r\n|\r|\n")
BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n")
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
            return self._pass(data)
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
        """The last event passed on was ``data: [DONE]``: nothing is missing."""
        return not self.inside and _DONE.search(self._last) is not None

    @property
    def broken_off(self) -> bool:
        """Nothing more comes, and an event has begun that is not whole.

        A ``data: [DONE]`` without its blank line has said all that it had to.
        """
        if self.inside or not self._held.strip(b"\r\n"):
            return self.inside
        return not self.done and _DONE.search(self._held) is None

    @property
    def failed(self) -> bool:
        """The last event passed on, but for comments, is an error: clients close."""
        said = [data for data in data_of(self._last) if data != b"[DONE]"]
        try:
            last = msgspec.json.decode(said[-1]) if said and not self.inside else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(last, dict):
            return False
        return bool(last.get("error")) or last.get("type") in _FAILURES

    def error_event(self, error: GatewayError) -> bytes:
        """The one event that ends a broken stream. What is held is dropped."""
        self._held.clear()
        return (b"\n\n" if self.inside else b"") + error_event(error)

    def _pass_unfinished(self) -> bytes:
        self.inside = True
        out = bytes(self._held).rstrip(b"\r\n")  # line ends may begin a blank line
        del self._held[: len(out)]
        return out

    def _pass(self, out: bytes) -> bytes:
        if self.inside or has_data(out):
            self._last = out[-KEPT:]
        self.inside = False
        return out


def error_event(error: GatewayError) -> bytes:
    """An error as an event, in the shape OpenAI's clients raise as an APIError."""
    return b"data: %b\n\n" % error.body()


def event(data: bytes) -> bytes:
    """One event that says this."""
    return b"data: " + data + b"\n\n"


def data_of(events: bytes) -> Iterator[bytes]:
    """What whole events say; comments and other fields are passed over."""
    for one in BLANK.split(events):
        lines = [
            line.removeprefix(b"data:").removeprefix(b" ")
            for line in LINE.split(one)
            if line.startswith(b"data:")
        ]
        if lines:
            yield b"\n".join(lines).strip()


def has_data(events: bytes) -> bool:
    """Whether there is an event with data in it, not only comments."""
    return events.startswith(b"data:") or b"\ndata:" in events or b"\rdata:" in events


def _last_end(held: bytearray, start: int) -> int:
    """Where the last blank line ends, looking from `start` on; 0 if there is none."""
    ends = [held.rfind(line, start) + len(line) for line in _BLANK_LINES]
    found = [e for e, line in zip(ends, _BLANK_LINES, strict=True) if e >= len(line)]
    return max(found, default=0)
