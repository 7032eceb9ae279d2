"""Which headers pass, both ways. Names and values stay the bytes they came as.

End-to-end headers pass with their case, their order and their repeats. Hop-by-hop
ones (RFC 9110, 7.6.1, and those that ``Connection`` names) do not; neither do the
ones that speak of this hop only: ``Host``, ``Content-Length``, ``Expect``.
"""

import re
import secrets
from collections.abc import Iterable, Sequence

RawHeaders = Sequence[tuple[bytes, bytes]]

REQUEST_ID = b"x-request-id"

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_SENT_UPSTREAM = _HOP_BY_HOP | {b"host", b"content-length", b"expect", REQUEST_ID}
_NOT_RETURNED = _HOP_BY_HOP | {REQUEST_ID}
_FRAMING = frozenset({b"content-length"})  # whatever ``Connection`` says of it

_NAMES = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:)*")
_ORIGIN = re.compile(rb"[^/?#]*://[^/?#]*")
_BAD_LINES = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")  # between lines is \n
_GOOD_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,256}")


def target(raw_path: str) -> bytes:
    """A request's path and query as the bytes that came (`Request.raw_path`).

    Of a target in absolute form (``http://host/path``) the path is left.
    """
    sent = raw_path.encode("utf-8", "surrogateescape")
    if sent.startswith(b"/"):
        return sent
    origin = _ORIGIN.match(sent)
    if origin is None:
        return sent
    path = sent[origin.end() :]
    return path if path.startswith(b"/") else b"/" + path


def first(headers: RawHeaders, name: bytes) -> bytes | None:
    """The value of the first header called `name` (lower case), or None."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


def request_id(headers: RawHeaders) -> bytes:
    """The client's ``X-Request-ID``, or a new one where it sent none worth keeping."""
    return sent_request_id(headers) or secrets.token_hex(16).encode()


def sent_request_id(headers: RawHeaders) -> bytes | None:
    """The client's ``X-Request-ID``: up to 256 visible ASCII characters, or None."""
    sent = first(headers, REQUEST_ID)
    if sent is not None and _GOOD_REQUEST_ID.fullmatch(sent):
        return sent
    return None


def to_worker(
    headers: RawHeaders,
    *,
    request_id: bytes,
    drop: frozenset[bytes] = frozenset(),
    extra: RawHeaders = (),
) -> list[tuple[bytes, bytes]]:
    """The client's headers as the worker gets them, with the request id.

    `drop` holds lower-case names to leave out, `extra` goes at the end. ``Host``
    and ``Content-Length`` are not here: whoever sends the request adds them. Some
    servers take an underscore for a dash (CGI, WSGI), so that counts as one.
    """
    dropped = _dropped(headers, _NOT_SENT_UPSTREAM) | drop
    dropped |= {name.replace(b"_", b"-") for name in dropped}
    kept = [p for p in headers if p[0].lower().replace(b"_", b"-") not in dropped]
    kept.append((b"X-Request-ID", request_id))
    kept.extend(extra)
    return kept


def to_client(
    headers: RawHeaders, *, request_id: bytes, extra: RawHeaders = ()
) -> list[tuple[bytes, bytes]]:
    """The worker's headers as the client gets them, with the request id.

    `extra` goes at the end, in place of what the worker calls the same.
    """
    dropped = _dropped(headers, _NOT_RETURNED) | {name.lower() for name, _ in extra}
    kept = [pair for pair in headers if pair[0].lower() not in dropped]
    kept.append((b"X-Request-ID", request_id))
    kept.extend(extra)
    return kept


def serialize(start_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A message head: start line, headers, blank line.

    Raises ValueError where a name, a value or the start line would end its line or
    begin another: no header can be injected, wherever it comes from.
    """
    pairs = tuple(headers)
    names = b"".join([name + b":" for name, _ in pairs])
    if not _NAMES.fullmatch(names) or names.count(b":") != len(pairs):
        raise ValueError("a header with a forbidden name")
    lines = [start_line, *[b"%b: %b" % pair for pair in pairs]]
    if _BAD_LINES.search(b"\n".join(lines)):
        raise ValueError("a line with a forbidden character")
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(pairs):
        raise ValueError("a line with a forbidden character")
    return head + b"\r\n\r\n"


def _dropped(headers: RawHeaders, always: frozenset[bytes]) -> frozenset[bytes]:
    """`always` and the names that the ``Connection`` headers list."""
    named = [value for key, value in headers if key.lower() == b"connection"]
    if not named or all(v.lower() in (b"keep-alive", b"close") for v in named):
        return always
    tokens = b",".join(named).lower().split(b",")
    return always | ({token.strip() for token in tokens} - _FRAMING)
