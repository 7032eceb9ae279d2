"""SGLang's block hashes: chained sha256 over pages, told as integers.

The formula is the engine's own (0.5.23), so that events look like those of a real one;
nobody matches requests with these hashes. A page of an adapter has a name that its load
enters; one with an `extra_key` alone is named as if it had none, although the engine
keeps it apart.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from kvindex.events import EngineHash
from simworker.hashing import Digest, Identity

_SALT_TAG = b"sglang-cache-salt-v1\x00"
_NAMESPACE_TAG = b"sglang-kv-event-namespace-v1"
_WORD, _WHOLE = 8, 32
_WIDE = b"\xff"
_LIMIT = 1 << 32


class PageHasher:
    """Hashes of pages; with `bigrams` each token is hashed with the one behind it.

    Behind a digest stands what keeps the page apart besides: with an adapter the seed
    of its names, else the hash of an `extra_key` and a byte.
    """

    def __init__(self, *, bigrams: bool = False) -> None:
        self.lookahead = int(bigrams)

    def link(
        self,
        parent: Digest | None,
        token_ids: Sequence[int],
        identity: Identity,
        number: int,
    ) -> Digest:
        """The digest of a page; a salt is what the first page's chain begins with."""
        if parent is None:
            parent = b"" if identity.salt is None else salt_seed(identity.salt)
        return page_digest(parent[:_WHOLE], self._elements(token_ids)) + _apart(
            identity
        )

    def _elements(self, token_ids: Sequence[int]) -> Sequence[int]:
        if not self.lookahead:
            return token_ids
        pairs = pairwise(token_ids)
        return [token_id for pair in pairs for token_id in pair]

    def event_value(self, digest: Digest) -> EngineHash:
        """The first 8 bytes; events carry them as a signed integer."""
        name, seed = digest[:_WORD], digest[_WHOLE:]
        if len(seed) == _WHOLE:
            name = hashlib.sha256(seed + name).digest()[:_WORD]
        return int.from_bytes(name)


def _apart(identity: Identity) -> bytes:
    key = identity.extra_key
    if identity.adapter is not None:
        return namespace_seed((key or "") + load_id(identity))
    return b"" if key is None else hashlib.sha256(key.encode()).digest() + b"k"


def load_id(identity: Identity) -> str:
    """The 32 characters that stand for an adapter as it was loaded."""
    loaded = f"{identity.adapter}={identity.adapter_path}"
    return hashlib.sha256(loaded.encode()).hexdigest()[:32]


def namespace_seed(extra_key: str | None, salt: str | None = None) -> bytes:
    """What enters the name of a page of an adapter, by which its key ends."""
    parts = bytearray(_NAMESPACE_TAG)
    for part in (extra_key, salt):
        if part is None:
            parts += b"\x00"
        else:
            text = part.encode()
            parts += b"\x01" + len(text).to_bytes(_WORD, "little") + text
    return hashlib.sha256(parts).digest()


def salt_seed(salt: str) -> Digest:
    """What stands before the first page of a salted prompt."""
    return hashlib.sha256(_SALT_TAG + salt.encode()).digest()


def page_digest(prior: bytes, token_ids: Sequence[int]) -> Digest:
    """The digest of one page behind `prior`; ids wider than u32 have a form of theirs.

    Those stand where media are, and are at most 64 bits.
    """
    wide = any(token_id >= _LIMIT for token_id in token_ids)
    packed = b"".join(
        [token_id.to_bytes(8 if wide else 4, "little") for token_id in token_ids]
    )
    return hashlib.sha256(prior + (_WIDE if wide else b"") + packed).digest()
