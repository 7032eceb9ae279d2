"""Parsing a worker's answer: heads, ends, limits, in any cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.response_parser import MAX_HEAD, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"Content-Length: 0\r\n\r\n"
CUTS = st.lists(st.integers(1, 2 * MAX_HEAD), max_size=8)


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


def cut(raw: bytes, at: list[int]) -> list[bytes]:
    """`raw` as reads that end at these places."""
    places = sorted({0, len(raw), *(a for a in at if a < len(raw))})
    return [raw[a:b] for a, b in pairwise(places)]


def filled(start: bytes, end: bytes, size: int) -> bytes:
    """A head of that size, with headers of about 1 KiB between start and end."""
    lines, left = b"", size - len(start) - len(end)
    while left > 2000:
        lines += b"A: " + b"x" * 995 + b"\r\n"
        left -= 1000
    return start + lines + b"A: " + b"x" * (left - 5) + b"\r\n" + end


INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


@given(CUTS, st.sampled_from([OK, INTERIM * 3 + OK, INTERIM * 300 + OK]))
def test_limit_of_a_head(at: list[int], start: bytes) -> None:
    """64 KiB with its interim answers, and not a byte more, in any cut."""
    parser, _ = parse(*cut(filled(start, END, MAX_HEAD), at))
    assert parser.complete
    parser, _ = parse(*cut(filled(start, END, MAX_HEAD + 1), at))
    assert parser.malformed == "the worker's headers are over 64 KiB"


@given(CUTS)
def test_what_follows_a_head_is_not_counted(at: list[int]) -> None:
    """Its body may come in the same read."""
    body = b"x" * 100_000
    head = filled(OK, b"Content-Length: %d\r\n\r\n" % len(body), MAX_HEAD)
    parser, got = parse(*cut(head + body, at))
    assert parser.complete
    assert got == body


@given(CUTS, st.sampled_from([b"T: 1\r\n", b"Trailer: " + b"x" * 989 + b"\r\n"]))
def test_limit_of_trailers(at: list[int], line: bytes) -> None:
    """64 KiB of them, whatever the head took, in any cut."""
    head = filled(OK, b"Transfer-Encoding: chunked\r\n\r\n", MAX_HEAD)
    chunks = b"3\r\nabc\r\n0\r\n"
    fits = MAX_HEAD // len(line)
    parser, body = parse(*cut(head + chunks + line * fits + b"\r\n", at))
    assert parser.complete
    assert body == b"abc"
    parser, body = parse(*cut(head + chunks + line * (fits + 1) + b"\r\n", at))
    assert parser.malformed == "the worker's trailers are over 64 KiB"
    assert body == b"abc"


@pytest.mark.parametrize(
    "start",
    [
        OK + b"A: ",
        b"HTTP/1.1 200 ",
        CHUNKED + b"3\r\nabc\r\n0\r\nT: ",
        CHUNKED + b"3\r\nabc\r\n0\r\n",
        CHUNKED + b"3;x=",
    ],
)
def test_a_line_without_end_is_given_up(start: bytes) -> None:
    """It is kept by nobody until it ends, in a head or behind a body."""
    parser, _ = parse(start)
    reads = 0
    while parser.malformed is None and reads < 1000:
        parser.feed(b"x" * 1024)
        reads += 1
    assert reads <= 130


def test_chunks_whose_sizes_come_alone_are_no_trailers() -> None:
    """A worker may write a size, then the data, for as long as it likes."""
    parser, _ = parse(CHUNKED)
    for _ in range(50_000):
        assert parser.feed(b"3\r\n") == []
        assert parser.feed(b"abc\r\n") == [b"abc"]
    assert parser.malformed is None


@given(st.lists(st.integers(1, 200), max_size=8))
def test_what_came_before_nonsense_is_body(at: list[int]) -> None:
    """All that was whole is handed over, in any cut; then it is malformed."""
    raw = CHUNKED + b"3\r\nabc\r\n2\r\nde\r\nZZZ\r\n"
    parser, body = parse(*cut(raw, at))
    assert body == b"abcde"
    assert parser.malformed == "the worker's answer is not HTTP/1"
    assert not parser.complete


@pytest.mark.parametrize("more", [b"A: " + b"x" * MAX_HEAD, b"A: 1\r\n" * 20_000])
def test_a_head_too_long_after_an_answer(more: bytes) -> None:
    """What follows a complete answer spoils only reuse."""
    parser, _ = parse(OK + END + OK + more)
    assert parser.complete
    assert parser.malformed is None
    assert not parser.keep_alive


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
