"""Headers beside a body that the gateway has made in place of another.

What speaks of the other body must not go along: it is wrong of this one, and a worker,
or what stands before it, would refuse or cut what it holds for damaged.
"""

import re
from collections.abc import Iterable

from gateway.request.headers import RawHeaders
from gateway.request.integrity import is_signed

_OF_A_BODY = re.compile(
    rb"content-.*|accept|accept-(encoding|ranges)|if-.*|range|etag|last-modified"
)
"""Names of headers about a body, about a part of it, or about the form of an answer
that is made here. RFC 9110, sections 8, 12.5, 13 and 14."""


def beside_another_body(headers: RawHeaders) -> RawHeaders:
    """Headers but for what holds for the body that they came with."""
    return [
        pair
        for pair in headers
        if not _OF_A_BODY.fullmatch(pair[0].lower().replace(b"_", b"-"))
        and not is_signed([pair])
    ]


def without(headers: RawHeaders, names: Iterable[bytes]) -> RawHeaders:
    """Headers but for those of these (lower-case) names."""
    dropped = {*names}
    return [pair for pair in headers if pair[0].lower() not in dropped]
