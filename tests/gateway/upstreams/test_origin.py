"""Workers' addresses."""

import pytest

from gateway.upstreams.origin import Origin


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("http://w1:8000", "w1", 8000, b"", b"w1:8000"),
        ("http://w1", "w1", 80, b"", b"w1"),
        ("https://w1/", "w1", 443, b"", b"w1"),
        ("https://w1:80/base/", "w1", 80, b"/base", b"w1:80"),
        ("http://[::1]:8000/a", "::1", 8000, b"/a", b"[::1]:8000"),
    ],
)
def test_parse(url: str, host: str, port: int, path: bytes, authority: bytes) -> None:
    """Host, port by scheme, the path before the worker's own, and Host's value."""
    origin = Origin.parse(url)
    assert (origin.host, origin.port, origin.path) == (host, port, path)
    assert origin.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "w1:8000",
        "ftp://w1",
        "http://",
        "http://u:p@w1",
        "http://w1?x",
        "http://w1:x",
        "http://w1/\r\nX: 1",
        "http://w\xfc",
        "http://w1:0",
        "http://w1:65536",
        "http://a..b",
        "http://" + "a" * 64,
        "http://" + "a." * 127 + "a",
        "http://w\\x",
        "http://%41",
    ],
)
def test_refuses(url: str) -> None:
    """What is no address of a worker."""
    with pytest.raises(ValueError, match=r"URL|port"):
        Origin.parse(url)
