"""Parsing a worker's answer: heads, ends, limits, in any cut."""

import pytest

from gateway.errors import MalformedAnswer
from gateway.upstreams.response_parser import MAX_HEAD, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"


def parse(*reads: bytes, answers_head: bool = False) -> tuple[ResponseParser, bytes]:
    """The parser after these reads, and the body they held."""
    parser = ResponseParser(answers_head=answers_head)
    body = b"".join(piece for read in reads for piece in parser.feed(read))
    return parser, body


def test_head_and_body() -> None:
    """Status, reason and headers as bytes; repeats stay."""
    parser, body = parse(OK + b"A: 1\r\na: \xff\r\nContent-Length: 2\r\n\r\nhi")
    assert (parser.status, parser.reason) == (200, b"OK")
    assert parser.headers == [(b"A", b"1"), (b"a", b"\xff"), (b"Content-Length", b"2")]
    assert body == b"hi"
    assert parser.complete
    assert parser.keep_alive


def test_byte_by_byte() -> None:
    """The same whatever the reads are."""
    raw = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Not Now\r\nRetry-After: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    )
    parser, body = parse(*(raw[i : i + 1] for i in range(len(raw))))
    assert (parser.status, parser.reason) == (503, b"Not Now")
    assert [name for name, _ in parser.headers] == [
        b"Retry-After",
        b"Transfer-Encoding",
    ]
    assert body == b"abc"
    assert parser.complete
    assert parser.keep_alive


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n"])
def test_an_answer_without_a_length_ends_with_its_connection(head: bytes) -> None:
    """Only then is it complete."""
    parser, body = parse(head + b"\r\nabc")
    assert body == b"abc"
    assert not parser.complete
    parser.eof()
    assert parser.complete
    assert not parser.keep_alive


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 20",
        OK + b"Content-Length: 5\r\n\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_an_early_end_is_not_complete(raw: bytes) -> None:
    """Where the answer has an end of its own, the connection's is not it."""
    parser, _ = parse(raw)
    parser.eof()
    assert not parser.complete


@pytest.mark.parametrize(
    ("raw", "keep_alive"),
    [
        (OK + b"Content-Length: 0\r\n\r\n", True),
        (OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
            True,
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", True),
        (OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n", False),
        (OK + b"Content-Length: 0\r\n\r\ngarbage", False),
    ],
)
def test_reuse(raw: bytes, keep_alive: bool) -> None:
    """By version, header, and whether more came than was asked for."""
    parser, _ = parse(raw)
    assert parser.complete
    assert parser.status in (200, 204, 304)
    assert parser.keep_alive is keep_alive


def test_answer_to_head() -> None:
    """Complete with its head."""
    parser, _ = parse(OK + b"Content-Length: 9\r\n\r\n", answers_head=True)
    assert parser.complete
    assert parser.keep_alive


def test_limit_of_headers() -> None:
    """Just below passes; above does not, also in trailers."""
    fits = OK + b"A: " + b"x" * (MAX_HEAD - 100) + b"\r\n"
    parser, _ = parse(fits + b"Content-Length: 0\r\n\r\n")
    assert parser.complete
    with pytest.raises(MalformedAnswer):
        parse(OK + b"A: " + b"x" * MAX_HEAD + b"\r\nContent-Length: 0\r\n\r\n")
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    with pytest.raises(MalformedAnswer):
        parse(chunked + b"T: 12345678\r\n" * 10_000 + b"\r\n")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_follows_an_answer_is_no_body_of_it(size: int) -> None:
    """Not in the same read, and not in later ones."""
    raw = (
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother"
    )
    parser, body = parse(*(raw[at : at + size] for at in range(0, len(raw), size)))
    assert parser.complete
    assert body == b"hi"


def test_an_answer_to_head_has_no_body() -> None:
    """Even if the worker sends one."""
    parser, body = parse(OK + b"Content-Length: 2\r\n\r\nhi", answers_head=True)
    assert parser.complete
    assert body == b""
