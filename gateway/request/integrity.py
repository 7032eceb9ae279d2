"""May bytes be added to a client's body? What its headers say of it.

Nothing is verified here: a digest or a signature is the worker's to check.
"""

import re
from collections.abc import Iterator

from gateway.request.headers import RawHeaders

_OF_THE_BYTES = re.compile(rb"signature|digest|hmac|content-md5|content-sha", re.I)
"""In the name of a header that holds for the client's very bytes: Content-Digest,
X-Hub-Signature-256, X-Amz-Content-Sha256, ..."""


def is_encoded(headers: RawHeaders) -> bool:
    """Whether the body is compressed, or what else ``Content-Encoding`` may say."""
    return any(
        c not in (b"", b"identity") for c in _listed(headers, b"content-encoding")
    )


def is_signed(headers: RawHeaders) -> bool:
    """Whether a header, or one that is to follow the body, vouches for its bytes."""
    return any(
        _OF_THE_BYTES.search(name)
        for name in (*(key for key, _ in headers), *_listed(headers, b"trailer"))
    )


def _listed(headers: RawHeaders, name: bytes) -> Iterator[bytes]:
    """The members of a header that lists words, in lower case."""
    for key, value in headers:
        if key.lower() == name:
            yield from (word.strip().lower() for word in value.split(b","))
