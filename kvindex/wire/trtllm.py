"""TensorRT-LLM's KV events: what `POST /kv_cache_events` drains, one JSON event each.

`trtllm_drain.py` takes an answer apart, `decode_event` reads one event. An event's id
counts up per attention-DP rank, so it is the sequence number of that rank's feed,
and one event is one batch of it. Optional fields vary by release; names are unsigned
integers or hex strings; a chain may end in a block that is not full.

Events tell neither the adapter of a block nor, mostly, its cache salt. A chain whose
first name is not that of a base block is marked `foreign` (`trtllm_hashes.py`).

Not here: polling, and what an event means for the index.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import json

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EngineHash,
    EventBatch,
    ExtraKeys,
    KVEvent,
    UndecodableBatch,
)
from kvindex.wire import vllm
from kvindex.wire.batches import BROKEN
from kvindex.wire.trtllm_encoding import encode_event, medium_of
from kvindex.wire.trtllm_fields import (
    Block,
    Cleared,
    Event,
    Removed,
    Stored,
    Updated,
    extra_key_of,
    id_of,
    name_of,
)
from kvindex.wire.trtllm_hashes import is_base

__all__ = [
    "MISSED",
    "decode_batch",
    "decode_event",
    "encode_event",
]

MISSED = "missed events: the worker's buffer overflowed, or someone else drains it too"
"""What a hole in the event ids means."""


class _Kind(msgspec.Struct):
    type: str


class _AnyEvent(msgspec.Struct):
    data: _Kind


_EVENT = json.Decoder(Event)
_ANY = json.Decoder(_AnyEvent)
_TYPES = {
    "stored": "BlockStored",
    "removed": "BlockRemoved",
    "updated": "BlockUpdated",
    "created": "CacheCreated",
    "all_cleared": "AllBlocksCleared",
}


def decode_event(payload: bytes, algorithm: str | None = None) -> EventBatch:
    """One event of a drain; `algorithm` is the worker's, if the event names none.

    An event that is broken is left out, its reason kept: `unknown_type`, or its type
    and what is wrong. Raises UndecodableBatch where it is no event at all.
    """
    try:
        event = _EVENT.decode(payload)
        events = tuple(_neutral(event, event.hash_algo or algorithm))
    except BROKEN as error:
        return EventBatch(
            timestamp=0.0, events=(), undecodable=(_reason(payload, error),)
        )
    rank = event.attention_dp_rank
    return EventBatch(timestamp=0.0, events=events, rank=rank)


def _reason(payload: bytes, error: Exception) -> str:
    """Why an event was skipped, in the words of the neutral events."""
    try:
        kind = _ANY.decode(payload).data.type
    except BROKEN as broken:
        raise UndecodableBatch(str(broken)) from broken
    if kind not in _TYPES:
        return "unknown_type"
    return f"{_TYPES[kind]}.fields"


def _neutral(event: Event, algorithm: str | None) -> Iterator[KVEvent]:
    data, group, window = event.data, event.layer_group_id, event.window_size
    if isinstance(data, Stored):
        yield from _stored(data, group, window, algorithm)
    elif isinstance(data, Removed):
        names = tuple([name_of(name) for name in data.block_hashes])
        yield BlockRemoved(hashes=names, any_medium=True, group=group, window=window)
    elif isinstance(data, Updated):
        diff = data.cache_level
        yield BlockUpdated(
            hash=name_of(data.block_hash),
            medium_before=medium_of(diff.old_value) if diff else None,
            medium=medium_of(diff.new_value) if diff else None,
            group=group,
            window=window,
        )
    elif isinstance(data, Cleared):
        yield AllBlocksCleared(lost=True)
    else:
        levels = tuple(data.num_blocks_per_cache_level)
        yield CacheCreated(blocks_per_level=levels, group=group, window=window)


def _stored(
    data: Stored, group: int | None, window: int | None, algorithm: str | None
) -> Iterator[BlockStored]:
    """A chain as runs of blocks of equal length and medium: its tail may be shorter."""
    parent = name_of(data.parent_hash) if data.parent_hash else None
    foreign = bool(data.blocks) and _is_foreign(data.blocks[0], parent, algorithm)
    for run in _runs(data.blocks):
        names = tuple([name_of(block.block_hash) for block in run])
        token_ids, extra_keys = _contents(run)
        yield BlockStored(
            hashes=names,
            parent=parent,
            token_ids=token_ids,
            block_size=len(run[0].tokens),
            medium=medium_of(run[0].cache_level),
            salt=run[0].cache_salt or None,
            extra_keys=extra_keys,
            group=group,
            window=window,
            foreign=foreign,
        )
        parent = names[-1]


def _contents(run: Sequence[Block]) -> tuple[bytes, tuple[ExtraKeys, ...] | None]:
    """Packed ids, and extra keys where there are any."""
    tokens = [token for block in run for token in block.tokens]
    media = any(block.mm_keys for block in run)
    if not media and not any(token.token_extra_id for token in tokens):
        ids = [token.token_id for token in tokens if type(token.token_id) is int]
        if len(ids) == len(tokens):
            return pack_ids(ids), None
    return pack_ids(map(id_of, tokens)), tuple([extra_key_of(block) for block in run])


def _runs(blocks: Sequence[Block]) -> Iterator[Sequence[Block]]:
    start = 0
    for end in range(1, len(blocks) + 1):
        if end == len(blocks) or _shape(blocks[end]) != _shape(blocks[start]):
            yield blocks[start:end]
            start = end


def _shape(block: Block) -> tuple[int, int]:
    return len(block.tokens), block.cache_level


def _is_foreign(block: Block, parent: EngineHash | None, algorithm: str | None) -> bool:
    """Is this the name of no base block? What has an extra key is never matched."""
    if extra_key_of(block):
        return False
    ids = [id_of(token) for token in block.tokens]
    return not is_base(
        name_of(block.block_hash),
        ids,
        parent,
        salt=block.cache_salt or None,
        algorithm=algorithm,
    )


def decode_batch(payload: bytes) -> EventBatch:
    """A message of the ZMQ publisher that some releases have: as vLLM's, in maps.

    Its blocks may be foreign, too. Raises UndecodableBatch as `vllm.decode_batch`.
    """
    batch = vllm.decode_batch(payload)
    events = tuple([_checked(event) for event in batch.events])
    return msgspec.structs.replace(batch, events=events)


def _checked(event: KVEvent) -> KVEvent:
    if not isinstance(event, BlockStored) or not event.hashes or event.block_size < 1:
        return event
    if event.adapter is not None or event.adapter_id is not None or event.extra_keys:
        return event
    ids = unpack_ids(event.ids_of(0))
    if is_base(event.hashes[0], ids, event.parent, salt=event.salt):
        return event
    return msgspec.structs.replace(event, foreign=True)
