"""Token ids to chained block hashes under a namespace.

The only keys the index is searched with: computed alike from a request and from a
worker's events. Not the engines' own hashes; those are opaque (`events.EngineHash`).
"""

import itertools
import sys
from array import array
from collections.abc import Iterable, Mapping
from struct import iter_unpack

import msgspec
from xxhash import xxh3_64_intdigest

ID_BYTES = 4
RUN = 32
"""Blocks that are cut at once."""


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as u32 little-endian bytes; ValueError on an id outside u32."""
    try:
        if isinstance(ids, list):
            packed = array("I")
            packed.fromlist(ids)  # a third faster than array("I", ids)
        else:
            packed = array("I", ids)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be integers of 32 bits: {error}") from error
    if sys.byteorder == "big":  # pragma: no cover
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(token_ids: bytes) -> list[int]:
    """The ids of u32 little-endian bytes; ValueError where bytes are left over."""
    packed = array("I")
    packed.frombytes(token_ids)
    if sys.byteorder == "big":  # pragma: no cover
        packed.byteswap()
    return packed.tolist()


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps equal token ids apart: base model, adapter, cache salt.

    `untold` is what a worker's cache keeps apart, too, and its events do not tell: no
    event is of such a namespace, so what is cached there is known by history only.
    """

    model: str
    adapter: str | None = None
    salt: str | None = None
    untold: str | None = None

    def root(self) -> int:
        """The parent hash of block 0: xxh3_64 over the fields.

        Each field is one byte 0 where it is None, else one byte 1, the length of its
        UTF-8 form as u64 little-endian, and that form: no two namespaces collide.
        """
        parts = bytearray()
        told = (self.model, self.adapter, self.salt)
        for field in told if self.untold is None else (*told, self.untold):
            if field is None:
                parts += b"\x00"
            else:
                text = field.encode("utf-8", "surrogatepass")
                parts += b"\x01" + len(text).to_bytes(8, "little") + text
        return xxh3_64_intdigest(bytes(parts))


def chain(
    token_ids: bytes,
    block_size: int,
    root: int,
    extra_keys: Mapping[int, bytes] | None = None,
) -> list[int]:
    """The hash of each full block of `token_ids` (u32 little-endian).

    `h_i = xxh3_64(ids of block i + extra key of block i, seed=h_{i-1})` with
    `h_{-1} = root`: a namespace's root, or the hash of the block before. `extra_keys`
    maps a block's position to the bytes that tell apart what equal ids do not (media).
    """
    if block_size < 1:
        raise ValueError(f"block size must be positive, not {block_size}")
    runs = _runs(token_ids, ID_BYTES * block_size)
    digest, parent = xxh3_64_intdigest, root
    if not extra_keys:
        return [parent := digest(block, parent) for run in runs for block in run]
    blocks = itertools.chain.from_iterable(runs)
    return [
        parent := digest(block + extra_keys.get(position, b""), parent)
        for position, block in enumerate(blocks)
    ]


def _runs(token_ids: bytes, stride: int) -> Iterable[tuple[bytes, ...]]:
    """Each full block of `stride` bytes: `RUN` at once, then the others one by one.

    Cutting took half the time of a chain where it was by slices or one at a time.
    """
    if len(token_ids) < stride:
        return ()
    whole = memoryview(token_ids)[: len(token_ids) // stride * stride]
    rest = len(whole) // (RUN * stride) * (RUN * stride)
    ones = iter_unpack(f"{stride}s", whole[rest:])
    if not rest:
        return ones
    return itertools.chain(iter_unpack(f"{stride}s" * RUN, whole[:rest]), ones)


def matchable_blocks(token_count: int, block_size: int) -> int:
    """How many blocks of a prompt a worker can at most find in its cache.

    The last token is always computed, so a hit never covers the whole prompt.
    """
    return max(0, (token_count - 1) // block_size)
