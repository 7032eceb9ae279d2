"""Neutral events to TensorRT-LLM's JSON, for a simulated worker."""

from kvindex.blocks import unpack_ids
from kvindex.events import (
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EngineHash,
    KVEvent,
)

_LEVELS = ("GPU", "CPU")
_PRIORITY = 35


def medium_of(level: int) -> str:
    """A cache level as a medium."""
    return _LEVELS[level] if 0 <= level < len(_LEVELS) else "DISK"


def encode_event(
    event: KVEvent,
    event_id: int,
    *,
    rank: int | None = None,
    window_size: int | None = None,
    hash_algo: str | None = None,
) -> dict[str, object]:
    """An event as an item of the drained list; optional fields where they are given.

    `window_size` if the event names no window. Raises TypeError for an event that
    TensorRT-LLM does not have.
    """
    group, window = getattr(event, "group", None), getattr(event, "window", None)
    item: dict[str, object] = {"event_id": event_id, "data": _data(event)}
    optional = {
        "window_size": window_size if window is None else window,
        "attention_dp_rank": rank,
        "hash_algo": hash_algo,
        "layer_group_id": group,
    }
    return item | {name: value for name, value in optional.items() if value is not None}


def _data(event: KVEvent) -> dict[str, object]:
    if isinstance(event, BlockStored):
        blocks = [_block(event, position) for position in range(len(event.hashes))]
        parent = None if event.parent is None else _spelt(event.parent)
        return {"type": "stored", "parent_hash": parent, "blocks": blocks}
    if isinstance(event, BlockRemoved):
        return {"type": "removed", "block_hashes": [*map(_spelt, event.hashes)]}
    if isinstance(event, BlockUpdated):
        diff: dict[str, object] | None = None
        if event.medium is not None and event.medium_before is not None:
            before, after = _level(event.medium_before), _level(event.medium)
            diff = {"type": "event_diff", "new_value": after, "old_value": before}
        data: dict[str, object] = {"type": "updated", "block_hash": _spelt(event.hash)}
        return data | {"cache_level": diff, "priority": None}
    if isinstance(event, CacheCreated):
        levels = [*event.blocks_per_level]
        return {"type": "created", "num_blocks_per_cache_level": levels}
    raise TypeError(f"TensorRT-LLM has no {type(event).__name__}")


def _block(event: BlockStored, position: int) -> dict[str, object]:
    tokens = [
        {"type": "unique_token", "token_id": token, "token_extra_id": 0}
        for token in unpack_ids(event.ids_of(position))
    ]
    block: dict[str, object] = {
        "type": "stored_block",
        "block_hash": _spelt(event.hashes[position]),
        "tokens": tokens,
        "cache_level": _level(event.medium or "GPU"),
        "priority": _PRIORITY,
    }
    return block if event.salt is None else block | {"cache_salt": event.salt}


def _spelt(name: EngineHash) -> int | str:
    return name.hex() if isinstance(name, bytes) else name


def _level(medium: str) -> int:
    return _LEVELS.index(medium) if medium in _LEVELS else len(_LEVELS)
