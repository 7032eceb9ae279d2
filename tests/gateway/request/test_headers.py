"""Which headers pass; that none can be injected."""

import pytest

from gateway.request import headers


def test_hop_by_hop_headers_are_dropped() -> None:
    """The fixed list, in any case, and what Connection names."""
    sent = [
        (b"Connection", b"close, X-Gone"),
        (b"x-gone", b"1"),
        (b"TE", b"trailers"),
        (b"Host", b"h"),
        (b"CONTENT-LENGTH", b"1"),
        (b"Expect", b"100-continue"),
        (b"X-Stays", b"1"),
        (b"x-stays", b"2"),
    ]
    assert headers.to_worker(sent, request_id=b"r") == [
        (b"X-Stays", b"1"),
        (b"x-stays", b"2"),
        (b"X-Request-ID", b"r"),
    ]


def test_drop_and_extra() -> None:
    """A handler's own headers replace the client's."""
    sent = [(b"X-Data-Parallel-Rank", b"7"), (b"A", b"1")]
    got = headers.to_worker(
        sent,
        request_id=b"r",
        drop=frozenset({b"x-data-parallel-rank"}),
        extra=[(b"X-data-parallel-rank", b"2")],
    )
    assert got == [
        (b"A", b"1"),
        (b"X-Request-ID", b"r"),
        (b"X-data-parallel-rank", b"2"),
    ]


def test_length_goes_back_to_the_client() -> None:
    """It speaks of the body, not of the hop."""
    got = headers.to_client(
        [
            (b"Content-Length", b"5"),
            (b"Keep-Alive", b"x"),
            (b"X-Request-ID", b"theirs"),
        ],
        request_id=b"ours",
    )
    assert got == [(b"Content-Length", b"5"), (b"X-Request-ID", b"ours")]


@pytest.mark.parametrize("sent", [b"abc-1", b"~" * 256])
def test_request_id_is_kept(sent: bytes) -> None:
    """Visible ASCII of a sane length."""
    assert headers.request_id([(b"x-REQUEST-id", sent)]) == sent


@pytest.mark.parametrize("sent", [b"", b"a b", b"x" * 257, b"\xe4", b"a\tb", None])
def test_request_id_is_made(sent: bytes | None) -> None:
    """Anything else is replaced; two are never equal."""
    given = [] if sent is None else [(b"X-Request-ID", sent)]
    made = headers.request_id(given)
    assert len(made) == 32
    assert made != headers.request_id(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"A", b"1\r\nB: 2"),
        (b"A", b"1\n"),
        (b"A", b"\x00"),
        (b"A\r\nB", b"1"),
        (b"A:", b"1"),
        (b"A:B", b"1"),
        (b"", b"1"),
        (b"A ", b"1"),
    ],
)
def test_nothing_is_injected(name: bytes, value: bytes) -> None:
    """A head with a forbidden character is not written at all."""
    with pytest.raises(ValueError, match="forbidden"):
        headers.serialize(b"GET / HTTP/1.1", [(name, value)])


def test_start_line_is_checked_too() -> None:
    """It holds the client's target."""
    with pytest.raises(ValueError, match="forbidden"):
        headers.serialize(b"GET /\r\nX: 1 HTTP/1.1", [])


def test_head_bytes() -> None:
    """Values stay bytes; the blank line ends it."""
    head = headers.serialize(b"GET / HTTP/1.1", [(b"A", b"\xe4 \t"), (b"B", b"")])
    assert head == b"GET / HTTP/1.1\r\nA: \xe4 \t\r\nB: \r\n\r\n"


def test_connection_does_not_take_the_length_away() -> None:
    """Without it a client could not tell where the answer ends."""
    passed = headers.to_client(
        [(b"Connection", b"close, Content-Length, X-A"), (b"Content-Length", b"2"),
         (b"X-A", b"1")],
        request_id=b"r",
    )  # fmt: skip
    assert passed == [(b"Content-Length", b"2"), (b"X-Request-ID", b"r")]


@pytest.mark.parametrize(
    ("raw_path", "expected"),
    [
        ("/v1/a%2F?b=%41", b"/v1/a%2F?b=%41"),
        ("http://h:1/v1?x=://y", b"/v1?x=://y"),
        ("http://h", b"/"),
        ("http://h?a=/v1/x", b"/?a=/v1/x"),
        ("http://h#/v1/x", b"/#/v1/x"),
        ("h:1", b"h:1"),
        ("*", b"*"),
        ("/\udce4", b"/\xe4"),
    ],
)
def test_target(raw_path: str, expected: bytes) -> None:
    """As it came; of an absolute form the path."""
    assert headers.target(raw_path) == expected


def test_underscores_smuggle_nothing() -> None:
    """Readers that take them for dashes would see a header that was left out."""
    sent = [
        (b"Transfer_Encoding", b"chunked"),
        (b"X_Data_parallel-Rank", b"3"),
        (b"Connection", b"my_hop"),
        (b"my_hop", b"2"),
        (b"my_own", b"1"),
    ]
    drop = frozenset({b"x-data-parallel-rank"})
    got = headers.to_worker(sent, request_id=b"r", drop=drop)
    assert got == [(b"my_own", b"1"), (b"X-Request-ID", b"r")]
