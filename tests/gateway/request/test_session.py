"""Which session a request belongs to."""

import json
from typing import Any

import pytest

from gateway.request.headers import RawHeaders
from gateway.request.peek import Peeked, peek_small
from gateway.request.session import HEADERS, LONGEST, session_of


def said(*headers: tuple[bytes, bytes], **body: Any) -> str | None:
    """The session of a request with these headers and fields."""
    sent: RawHeaders = [(b"Host", b"x"), *headers]
    return session_of(sent, peek_small(json.dumps(body).encode()))


def test_nothing_said() -> None:
    """No session."""
    assert said(model="m") is None
    assert session_of([], Peeked()) is None


@pytest.mark.parametrize("name", HEADERS)
def test_each_header(name: bytes) -> None:
    """In any case, and before what the body says."""
    assert said((name.title(), b" s1 "), user="u") == "s1"


def test_the_first_header_counts() -> None:
    """By what it is called, not by where it is."""
    backwards = [(name, b"%d" % n) for n, name in enumerate(HEADERS)][::-1]
    assert said(*backwards) == "0"
    assert said(*backwards[:3]) == "9"


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({"user": "u"}, "u"),
        ({"session_id": "s"}, "s"),
        ({"conversation_params": {"conversation_id": "c", "more": [1]}}, "c"),
        ({"conversation": "c"}, "c"),
        ({"conversation": {"id": "c"}}, "c"),
        ({"session_id": "s", "conversation": "c", "user": "u"}, "s"),
        ({"conversation": "c", "user": "u"}, "c"),
        ({"user": ""}, None),
        ({"user": None, "session_id": 7, "conversation": []}, None),
        ({"conversation_params": {"conversation_id": 5}, "user": "u"}, "u"),
        ({"session_id": "x" * 10_000, "user": "u"}, "u"),
        ({"user": "x" * (LONGEST + 1)}, None),
    ],
)
def test_fields_of_the_body(body: dict[str, Any], session: str | None) -> None:
    """A conversation's name goes before a user's; odd values name nothing."""
    assert said(**body) == session


def test_odd_headers_name_nothing() -> None:
    """Empty or far too long: the next one counts."""
    empty, long = (HEADERS[0], b" "), (HEADERS[1], b"x" * (LONGEST + 1))
    assert said(empty, long, (HEADERS[2], b"c")) == "c"
    assert said(empty, long) is None


def test_any_bytes() -> None:
    """Header values are bytes, and body texts may be anything."""
    assert said((HEADERS[0], b"\xff\x00")) == "\xff\x00"
    assert session_of([], peek_small(b'{"user": "\\ud800"}')) in (None, "\ud800")
