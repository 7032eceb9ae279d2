"""What TensorRT-LLM's events are made of, in JSON. Not here: what they mean."""

import msgspec

from kvindex.events import EngineHash, ExtraKeys
from kvindex.wire.batches import HASH_BYTES, UNSIGNED

_U32 = 2**32 - 1


class Token(msgspec.Struct, gc=False):
    token_id: int | str
    token_extra_id: int | None = 0


class Media(msgspec.Struct):
    hash: str
    start_offset: int = 0
    uuid: object = None


class Block(msgspec.Struct):
    block_hash: int | str
    tokens: list[Token]
    cache_level: int = 0
    mm_keys: list[Media] | None = None
    cache_salt: str | None = None


class Stored(msgspec.Struct, tag="stored"):
    blocks: list[Block]
    parent_hash: int | str | None = None


class Removed(msgspec.Struct, tag="removed"):
    block_hashes: list[int | str]


class Diff(msgspec.Struct):
    new_value: int
    old_value: int


class Updated(msgspec.Struct, tag="updated"):
    block_hash: int | str
    cache_level: Diff | None = None


class Created(msgspec.Struct, tag="created"):
    num_blocks_per_cache_level: list[int]


class Cleared(msgspec.Struct, tag="all_cleared"):
    """All blocks are gone, or events of them were lost."""


class Event(msgspec.Struct):
    data: Stored | Removed | Updated | Created | Cleared
    window_size: int | None = None
    layer_group_id: int | None = None
    hash_algo: str | None = None
    attention_dp_rank: int | None = None


def extra_key_of(block: Block) -> ExtraKeys:
    """What beside ids is in a block: media, digests in place of ids, extra ids."""
    key: list[object] = [(item.hash, item.start_offset) for item in block.mm_keys or ()]
    key += [
        (position, token.token_id, token.token_extra_id)
        for position, token in enumerate(block.tokens)
        if token.token_extra_id or type(token.token_id) is str
    ]
    return tuple(key) or None


def id_of(token: Token) -> int:
    """A digest in place of an id is in the block's extra key."""
    return token.token_id if isinstance(token.token_id, int) else _U32


def name_of(name: int | str) -> EngineHash:
    """A block's name: an unsigned integer, or the bytes of a hex string."""
    if isinstance(name, int):
        return name & UNSIGNED
    digest = bytes.fromhex(name)
    if not 0 < len(digest) <= HASH_BYTES:
        raise ValueError(f"a name of {len(digest)} bytes")
    return digest
