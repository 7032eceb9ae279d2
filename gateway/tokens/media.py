"""Media of a prompt of token ids, and how they tell equal placeholders apart.

As vLLM has it (`v1/core/kv_cache_utils.py`): each block that an item reaches into has
`[hash, offset from the block's first token]` in its extra keys, in order of the items.
Events tell the same, so the hashes made of both are equal.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from kvindex.events import media_key

Offset = Annotated[int, msgspec.Meta(ge=0)]
Length = Annotated[int, msgspec.Meta(gt=0)]
MOST_BLOCKS = 1 << 20
"""Blocks that media of one prompt may reach into, whatever its body claims."""


class Place(msgspec.Struct, frozen=True):
    """Where the placeholders of an item are."""

    offset: Offset
    length: Length


class Features(msgspec.Struct, frozen=True):
    """What is read of a GenerateRequest's `features`; the rest travels unread."""

    mm_hashes: Mapping[str, Sequence[str]] = {}
    mm_placeholders: Mapping[str, Sequence[Place]] = {}


class Medium(msgspec.Struct, frozen=True):
    """One item."""

    hash: str
    place: Place


def media_of(features: Features | None) -> list[Medium]:
    """The items in order; raises ValueError where hashes and places do not match."""
    if features is None:
        return []
    found = [
        Medium(hash_, place)
        for modality, hashes in features.mm_hashes.items()
        for hash_, place in zip(
            hashes, features.mm_placeholders.get(modality, ()), strict=True
        )
    ]
    return sorted(found, key=lambda medium: medium.place.offset)


def extra_keys(
    media: Sequence[Medium], block_size: int, tokens: int
) -> dict[int, bytes] | None:
    """Block -> its extra key, as `kvindex.blocks.chain` takes it; ValueError."""
    blocks: dict[int, list[object]] = {}
    for medium in media:
        start = medium.place.offset
        end = min(start + medium.place.length, tokens)
        for block in range(start // block_size, -(-end // block_size)):
            if len(blocks) >= MOST_BLOCKS:
                raise ValueError("media in too many blocks")
            blocks.setdefault(block, []).append(
                [medium.hash, start - block * block_size]
            )
    return {block: media_key(items) for block, items in blocks.items()} or None
