"""How TensorRT-LLM names its blocks: three recipes, and who of them made a name.

Needed for one question: is this the name of a block of the base model? The events tell
neither adapter nor salt, but both enter the names. Formulas: kv_cache_hash.py and
blockKey.cpp of TensorRT-LLM. Not for matching; the index has hashes of its own.
"""

import hashlib
from collections.abc import Sequence

from kvindex.blocks import pack_ids
from kvindex.events import EngineHash

_M32 = 2**32 - 1
_M64 = 2**64 - 1
_DIGEST_BYTES = 32


def _mix32(seed: int, value: int) -> int:
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _M32
    value = (((value >> 16) ^ value) * 0x45D9F3B) & _M32
    value = (((value >> 16) ^ value) + 0x9E3779B9) & _M32
    return seed ^ ((value + (seed << 6) + (seed >> 2)) & _M64)


def _mix64(seed: int, value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _M64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _M64
    value ^= value >> 31
    return seed ^ ((value + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & _M64)


def salt_id(salt: str) -> int:
    """The number that stands for a cache salt."""
    digest = hashlib.sha256(salt.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")


def v1_block_key(
    ids: Sequence[int],
    parent: int = 0,
    *,
    adapter: int | None = None,
    salt: int | None = None,
) -> int:
    """The unsigned 64-bit name of a block; `parent` is 0 for block 0."""
    key = (len(ids) ^ (parent * 0xBF58476D1CE4E5B9)) & _M64
    if not parent and salt is not None:
        key = _mix64(key, salt)
    for token in ids:
        key = _mix32(key, token)
    return key if adapter is None else _mix64(key, adapter)


def v2_root(*, adapter: int | None = None, salt: int | None = None) -> bytes:
    """The digest before block 0."""
    mask = (adapter is not None) | (salt is not None) << 1
    values = [value for value in (adapter, salt) if value is not None]
    parts = [value.to_bytes(8, "little") for value in values]
    return hashlib.sha256(bytes([mask]) + b"".join(parts)).digest()


def v2_sha256(ids: Sequence[int], parent: bytes) -> bytes:
    """The digest of a block after the one with digest `parent`."""
    return hashlib.sha256(parent + pack_ids(ids)).digest()


def v2_sha256_64(digest: bytes) -> int:
    """The short form of such a digest."""
    return int.from_bytes(digest[:8], "big")


V1 = "v1_block_key"
V2 = "v2_sha256"
V2_64 = "v2_sha256_64"


def is_base(
    name: EngineHash,
    ids: Sequence[int],
    parent: EngineHash | None,
    *,
    salt: str | None = None,
    algorithm: str | None = None,
) -> bool:
    """Can this be the name of a block of the base model (under this cache salt)?

    `algorithm` None tries each recipe. True also where it cannot be told: the short
    form of a digest says nothing of the blocks behind it, but with that recipe adapter
    and salt enter at the root only, so such a block is what its parent is.
    """
    number = None if salt is None else salt_id(salt)
    if algorithm in (None, V2, V2_64):
        if parent is None:
            return _is_digest(name, v2_sha256(ids, v2_root(salt=number))) or (
                algorithm is None and _is_key(name, v1_block_key(ids, salt=number))
            )
        if isinstance(parent, bytes) and len(parent) == _DIGEST_BYTES:
            return _is_digest(name, v2_sha256(ids, parent))
        return True
    if algorithm != V1:
        return False
    before = int.from_bytes(parent, "big") if isinstance(parent, bytes) else parent
    return _is_key(name, v1_block_key(ids, (before or 0) & _M64, salt=number))


def _is_digest(name: EngineHash, digest: bytes) -> bool:
    return name in (digest, digest[:8], v2_sha256_64(digest))


def _is_key(name: EngineHash, key: int) -> bool:
    return name in (key, key.to_bytes(8, "big"))
