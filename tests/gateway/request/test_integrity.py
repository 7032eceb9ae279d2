"""Which headers speak against adding to a body."""

import pytest

from gateway.request.integrity import is_encoded, is_signed


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (b"gzip", True),
        (b"identity, br", True),
        (b"zstd", True),
        (b"identity", False),
        (b" Identity ", False),
        (b"", False),
    ],
)
def test_encodings(value: bytes, encoded: bool) -> None:
    """`identity` is none."""
    headers = [(b"Host", b"h"), (b"Content-Encoding", value)]
    assert is_encoded(headers) is encoded


def test_no_encoding() -> None:
    """Nor is a header that is not there; of two, either may be one."""
    assert not is_encoded([(b"Accept-Encoding", b"gzip")])
    two = [(b"Content-Encoding", b"identity"), (b"content-encoding", b"gzip")]
    assert is_encoded(two)


@pytest.mark.parametrize(
    "name",
    [
        b"Content-MD5",
        b"Digest",
        b"Content-Digest",
        b"Repr-Digest",
        b"Signature",
        b"Signature-Input",
        b"X-Signature",
        b"X-Signature-Ed25519",
        b"x-hub-signature-256",
        b"X-Hub-Signature",
        b"X-Shopify-Hmac-SHA256",
        b"X-Amz-Content-Sha256",
    ],
)
def test_signed(name: bytes) -> None:
    """Digests and signatures by their names, also as trailers."""
    assert is_signed([(b"Host", b"h"), (name, b"x")])
    assert is_signed([(b"Trailer", b"Expires, " + name.lower())])
    assert not is_signed([(b"Accept", name)])


def test_not_signed() -> None:
    """Headers of every day, and trailers that say nothing of the bytes."""
    every_day = (b"Host", b"Authorization", b"Content-Type", b"User-Agent", b"TE")
    assert not is_signed([(name, b"x") for name in every_day])
    assert not is_signed([(b"Trailer", b"Expires, Server-Timing")])
