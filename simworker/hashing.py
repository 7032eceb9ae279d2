"""What names a block in an engine's events, and vLLM's names: chained hashes.

A hash covers the block's tokens, its extra keys (adapter, cache salt) and the hash
of the block before it. The formula is the engine's own, so events of a simulated
worker look like those of a real one; nobody matches requests with these hashes.
"""

import hashlib
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from kvindex.events import EngineHash

DEFAULT_SEED = "vllm-none-hash"

ExtraKeys = tuple[tuple[str | int, ...], ...]
Digest = bytes
_Serializer = Callable[[object], bytes]


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


def _head(major: int, value: int) -> bytes:
    """The head of a canonical CBOR item: the shortest form that holds `value`."""
    if value < 24:
        return bytes((major << 5 | value,))
    for code, size, form in ((24, 8, ">BB"), (25, 16, ">BH"), (26, 32, ">BI")):
        if value < 1 << size:
            return struct.pack(form, major << 5 | code, value)
    return struct.pack(">BQ", major << 5 | 27, value)


def canonical_cbor(value: object) -> bytes:
    """`value` in canonical CBOR; only what a block hash is made of.

    Takes None, ints, str, bytes and tuples of these. Raises TypeError else.
    """
    match value:
        case None:
            return b"\xf6"
        case int():
            return _head(0, value) if value >= 0 else _head(1, -1 - value)
        case bytes():
            return _head(2, len(value)) + value
        case str():
            encoded = value.encode()
            return _head(3, len(encoded)) + encoded
        case tuple():
            return _head(4, len(value)) + b"".join(map(canonical_cbor, value))
        case _:
            raise TypeError(f"no canonical form of {type(value).__name__}")


_SERIALIZERS: dict[str, _Serializer] = {
    "sha256": _pickled,
    "sha256_cbor": canonical_cbor,
}
ALGORITHMS = tuple(_SERIALIZERS)


class Hasher(Protocol):
    """How one engine names its blocks.

    The name of block number `number` covers its tokens and, as in windows over the
    text, the `lookahead` tokens after it.
    """

    lookahead: int

    def link(
        self,
        parent: Digest | None,
        token_ids: Sequence[int],
        identity: "Identity",
        number: int,
    ) -> Digest:
        """The digest of a block behind `parent`; None before block 0."""
        ...

    def event_value(self, digest: Digest) -> EngineHash:
        """What an event carries of a digest."""
        ...


class BlockHasher:
    """Hashes of one engine: algorithm, seed and the form its events use.

    `block = sha256(serialized((parent, tuple(token_ids), extra_keys or None)))`, the
    first block's parent is `sha256(serialized(seed))` (vLLM >= 0.31).
    """

    lookahead = 0

    def __init__(
        self,
        algorithm: str = "sha256",
        *,
        seed: str = DEFAULT_SEED,
        bytes_hashes: bool = False,
    ) -> None:
        self._serialized = _SERIALIZERS[algorithm]
        self._bytes_hashes = bytes_hashes
        self.root: Digest = hashlib.sha256(self._serialized(seed)).digest()

    def block(
        self, parent: Digest, token_ids: Sequence[int], extra_keys: ExtraKeys = ()
    ) -> Digest:
        """The digest of one full block behind `parent`."""
        content = (parent, tuple(token_ids), extra_keys or None)
        return hashlib.sha256(self._serialized(content)).digest()

    def link(
        self,
        parent: Digest | None,
        token_ids: Sequence[int],
        identity: "Identity",
        number: int,
    ) -> Digest:
        """The digest of block number `number` of a request."""
        keys = identity.hashed_keys(number, len(token_ids))
        return self.block(self.root if parent is None else parent, token_ids, keys)

    def event_value(self, digest: Digest) -> EngineHash:
        """What an event carries: the last 8 bytes as an integer, or all 32."""
        if self._bytes_hashes:
            return digest
        return int.from_bytes(digest[-8:])


class Medium(NamedTuple):
    """An image, or the like, that placeholder tokens of a prompt stand for."""

    hash: str
    offset: int
    length: int


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What separates one cache namespace of an engine from another.

    The adapter goes into every block's extra keys, the cache salt into the first
    one's, and each of the `media`, in order of their offsets, into those of the blocks
    it reaches into. Events carry the bare values, hashes the tagged ones. `extra_key`
    is SGLang's.
    """

    adapter: str | None = None
    adapter_path: str = ""
    adapter_id: int | None = None
    salt: str | None = None
    extra_key: str | None = None
    media: tuple[Medium, ...] = ()

    def hashed_keys(self, block: int, size: int) -> ExtraKeys:
        """The extra keys inside the hash of block number `block`, of `size` tokens."""
        keys: list[tuple[str | int, ...]] = []
        if self.adapter is not None:
            keys.append(("lora", self.adapter, self.adapter_path))
        start = block * size
        keys += [
            ("mm", medium.hash, medium.offset - start)
            for medium in self.media
            if start - medium.length < medium.offset < start + size
        ]
        if self.salt is not None and block == 0:
            keys.append(("cache_salt", self.salt))
        return tuple(keys)

    def event_keys(self, block: int, size: int) -> tuple[object, ...] | None:
        """The extra keys an event shows for block number `block`."""
        keys = self.hashed_keys(block, size)
        return tuple(k[1:] if k[0] == "mm" else k[1] for k in keys) or None
