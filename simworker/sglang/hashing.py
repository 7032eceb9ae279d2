"""SGLang's block hashes: chained sha256 over pages, told as integers.

The formula is the engine's own (0.5.23), so that events look like those of a real one;
nobody matches requests with these hashes.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from kvindex.events import EngineHash
from simworker.hashing import Digest, Identity

_SALT_TAG = b"sglang-cache-salt-v1\x00"
_WIDE = b"\xff"
_LIMIT = 1 << 32


class PageHasher:
    """Hashes of pages; with `bigrams` each token is hashed with the one behind it."""

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
        return page_digest(parent, self._elements(token_ids))

    def _elements(self, token_ids: Sequence[int]) -> Sequence[int]:
        if not self.lookahead:
            return token_ids
        pairs = pairwise(token_ids)
        return [token_id for pair in pairs for token_id in pair]

    def event_value(self, digest: Digest) -> EngineHash:
        """The first 8 bytes; events carry them as a signed integer."""
        return int.from_bytes(digest[:8])


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
