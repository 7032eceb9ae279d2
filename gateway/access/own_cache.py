"""A cache of its own for each client: a `cache_salt` in its requests' bodies.

Prompts that another client has sent are answered sooner where a worker's cache is
shared, which tells that they were sent. Blocks with another salt are never shared. A
client's own salt counts within its own: nobody can name, or guess, another's.
"""

import codecs
import hashlib

import msgspec
from aiohttp import web

from gateway.access.clients import CLIENT
from gateway.request.integrity import is_encoded, is_signed
from gateway.request.peek import peek

FIELD = b'"cache_salt"'
LENGTH = 32
"""Hex digits; vLLM takes up to 128 characters, none of them a slash."""


def salt_of(key_hash: str, own: str | None) -> str:
    """The salt of a client, known by the hash of its key, with one that it sent."""
    parts = ("cache_salt", key_hash, own or "")
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:LENGTH]


def with_salt(body: bytes, salt: str) -> bytes:
    """A JSON object with the field at its end: the last of a name is the one read."""
    end = body.rindex(b"}")
    before = end - 1
    while body[before : before + 1] in (b" ", b"\t", b"\r", b"\n"):
        before -= 1
    comma = b"" if body[before : before + 1] == b"{" else b","
    field = b"%b%b:%b" % (comma, FIELD, msgspec.json.encode(salt))
    return b"".join((memoryview(body)[:end], field, memoryview(body)[end:]))


def _may_be_object(body: bytes) -> bool:
    """Whether some reader may take it for a JSON object, in UTF-8."""
    text = body.removeprefix(codecs.BOM_UTF8).strip(b" \t\r\n")
    return text.startswith(b"{") and text.endswith(b"}")


async def in_own_cache(request: web.Request, body: bytes) -> bytes:
    """The body of a known client's request, with the salt of its cache.

    As it is where nobody is known, and where it cannot be added to: compressed, signed,
    no JSON object. What such a body says is in the cache of all, and in nobody's own.
    What only workers can read (NaN, half of a surrogate pair) is added to all the same.
    """
    client = request.get(CLIENT)
    headers = request.raw_headers
    if client is None or is_encoded(headers) or is_signed(headers):
        return body
    peeked = await peek(body)
    if peeked.problem is not None and not _may_be_object(body):
        return body
    return with_salt(body, salt_of(client.key_hash, peeked.cache_salt))
