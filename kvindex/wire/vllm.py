"""vLLM's KV-event stream: ZMQ frames and msgpack payloads, to and from neutral events.

A payload is the array `[timestamp, events, data-parallel rank]`. An event is a map with
`type` from vLLM 0.24 on, before that an array `[type, fields...]` with the same fields
in one order and trailing ones left out. Unknown fields are ignored, absent ones are
None. Not here: what an event means for the index, and sockets.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import msgpack

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    KVEvent,
    UndecodableBatch,
)

END_OF_REPLAY = 2**64 - 1
"""The sequence number of the message that ends a replay."""

_UNSIGNED = 2**64 - 1
HASH_BYTES = 64
"""No engine's digests are longer."""
_SEQUENCE_BYTES = 8
_BROKEN = (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError)


_Hash = int | Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)]


class _Stored(msgspec.Struct, tag="BlockStored", tag_field="type"):
    block_hashes: list[_Hash]
    parent_block_hash: _Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[object] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: object = None
    locality: str | None = None
    ownership: object = None
    session_id: object = None


class _Removed(msgspec.Struct, tag="BlockRemoved", tag_field="type"):
    block_hashes: list[_Hash]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: object = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type"):
    pass


class _StoredArray(_Stored, tag="BlockStored", array_like=True):
    pass


class _RemovedArray(_Removed, tag="BlockRemoved", array_like=True):
    pass


class _ClearedArray(_Cleared, tag="AllBlocksCleared", array_like=True):
    pass


class _Batch(msgspec.Struct, array_like=True):
    timestamp: float
    events: list[_Stored | _Removed | _Cleared]
    rank: object = None


class _ArrayBatch(msgspec.Struct, array_like=True):
    timestamp: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]
    rank: object = None


class _RawBatch(msgspec.Struct, array_like=True):
    timestamp: float
    events: list[msgspec.Raw]
    rank: object = None


_WHOLE = (msgpack.Decoder(_Batch), msgpack.Decoder(_ArrayBatch))
_RAW = msgpack.Decoder(_RawBatch)
_MAP = msgpack.Decoder(_Stored | _Removed | _Cleared)
_ARRAY = msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)
_ANY = msgpack.Decoder()
_TYPES = {
    "BlockStored": _Stored.__struct_fields__,
    "BlockRemoved": _Removed.__struct_fields__,
    "AllBlocksCleared": (),
}


def decode_batch(payload: bytes) -> EventBatch:
    """The events of one payload; a broken event is skipped and its reason kept.

    Raises UndecodableBatch where the payload is no batch at all, and nothing else.
    """
    for decoder in _WHOLE:
        try:
            batch = decoder.decode(payload)
            events = tuple([_neutral(event) for event in batch.events])
        except _BROKEN:
            continue
        return EventBatch(
            timestamp=batch.timestamp, events=events, rank=_rank(batch.rank)
        )
    return _decode_singly(payload)


def _decode_singly(payload: bytes) -> EventBatch:
    """The slow way, event by event: broken ones, or both layouts in one batch."""
    try:
        batch = _RAW.decode(payload)
    except _BROKEN as error:
        raise UndecodableBatch(str(error)) from error
    events: list[KVEvent] = []
    undecodable: list[str] = []
    for raw in batch.events:
        try:
            decoder = _MAP if _is_map(raw) else _ARRAY
            events.append(_neutral(decoder.decode(raw)))
        except _BROKEN as error:
            undecodable.append(_reason(raw, error))
    return EventBatch(
        timestamp=batch.timestamp,
        events=tuple(events),
        rank=_rank(batch.rank),
        undecodable=tuple(undecodable),
    )


def _is_map(raw: msgspec.Raw) -> bool:
    first = memoryview(raw)[0]
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _neutral(event: _Stored | _Removed | _Cleared) -> KVEvent:
    if isinstance(event, _Stored):
        return _stored(event)
    if isinstance(event, _Removed):
        return BlockRemoved(
            hashes=_hashes(event.block_hashes),
            medium=event.medium,
            group=event.group_idx,
            locality=event.locality,
        )
    return AllBlocksCleared()


def _stored(event: _Stored) -> BlockStored:
    parent, keys, session = event.parent_block_hash, event.extra_keys, event.session_id
    try:
        token_ids = pack_ids(event.token_ids)
    except ValueError as error:
        raise ValueError("at `$.token_ids`") from error
    return BlockStored(
        hashes=_hashes(event.block_hashes),
        parent=parent & _UNSIGNED if isinstance(parent, int) else parent,
        token_ids=token_ids,
        block_size=event.block_size,
        medium=event.medium,
        adapter=event.lora_name,
        adapter_id=event.lora_id,
        extra_keys=tuple([tuple(k) if k else None for k in keys]) if keys else None,
        group=event.group_idx,
        group_kind=event.kv_cache_spec_kind,
        locality=event.locality,
        session_id=session if isinstance(session, str) else None,
    )


def _hashes(hashes: list[int | bytes]) -> tuple[EngineHash, ...]:
    """Integers unsigned (some publishers sign them), digests as they are."""
    return tuple([h & _UNSIGNED if isinstance(h, int) else h for h in hashes])


def _rank(rank: object) -> int | None:
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


def _reason(raw: msgspec.Raw, error: Exception) -> str:
    """Why an event was skipped, as one of a small set of words."""
    try:
        event = _ANY.decode(raw)
    except _BROKEN:
        return "not_an_event"
    kind = event.get("type") if isinstance(event, dict) else None
    if isinstance(event, list) and event:
        kind = event[0]
    if not isinstance(kind, str):
        return "not_an_event"
    if kind not in _TYPES:
        return "unknown_type"
    return f"{kind}.{_field(kind, str(error))}"


def _field(kind: str, message: str) -> str:
    named = re.search(r"`\$\.(\w+)|required field `(\w+)`", message)
    if named and (named[1] or named[2]) in _TYPES[kind]:
        return named[1] or named[2]
    placed = re.search(r"`\$\[(\d+)\]", message)  # position 0 is the type
    if placed and 0 < int(placed[1]) <= len(_TYPES[kind]):
        return _TYPES[kind][int(placed[1]) - 1]
    return "fields"


def encode_batch(batch: EventBatch) -> bytes:
    """A payload as vLLM 0.32 writes it: map events, absent optional fields left out."""
    events = [_wire(event) for event in batch.events]
    return msgpack.encode([batch.timestamp, events, batch.rank])


def _wire(event: KVEvent) -> dict[str, object]:
    if isinstance(event, AllBlocksCleared):
        return {"type": "AllBlocksCleared"}
    if isinstance(event, BlockRemoved):
        return {
            "type": "BlockRemoved",
            "block_hashes": event.hashes,
            "medium": event.medium,
        } | _given(group_idx=event.group, locality=event.locality)
    return {
        "type": "BlockStored",
        "block_hashes": event.hashes,
        "parent_block_hash": event.parent,
        "token_ids": unpack_ids(event.token_ids),
        "block_size": event.block_size,
        "lora_id": event.adapter_id,
        "medium": event.medium,
        "lora_name": event.adapter,
    } | _given(
        extra_keys=event.extra_keys,
        group_idx=event.group,
        kv_cache_spec_kind=event.group_kind,
        locality=event.locality,
        session_id=event.session_id,
    )


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def decode_frames(frames: Sequence[bytes]) -> tuple[bytes, int, bytes]:
    """(topic, sequence, payload) of a live or a replayed ZMQ message.

    Live: topic, sequence, payload. Replayed: an empty frame first; before vLLM 0.26 no
    topic. A replay ends with sequence `END_OF_REPLAY` and an empty payload, or with two
    empty frames. Raises UndecodableBatch on anything else.
    """
    if len(frames) == 2 and not any(frames):
        return b"", END_OF_REPLAY, b""
    if len(frames) not in (3, 4):
        raise UndecodableBatch(f"{len(frames)} frames")
    topic, sequence, payload = frames[-3:]
    if len(sequence) != _SEQUENCE_BYTES:
        raise UndecodableBatch(f"a sequence number of {len(sequence)} bytes")
    return topic, int.from_bytes(sequence, "big"), payload


def encode_frames(topic: bytes, sequence: int, payload: bytes) -> list[bytes]:
    """The frames of a live message."""
    return [topic, sequence.to_bytes(_SEQUENCE_BYTES, "big"), payload]
