"""vLLM's KV-event stream: ZMQ frames and msgpack payloads, to and from neutral events.

Events are maps from vLLM 0.24 on, before that arrays (`batches.py`). Unknown fields are
ignored, absent ones are None. Only from 0.17 on do they tell a block's salt and media,
only from 0.14 on an adapter's name. Not here: what an event means for the index, and
sockets.
"""

from collections.abc import Sequence

import msgspec
from msgspec import msgpack

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KVEvent,
    UndecodableBatch,
)
from kvindex.wire.batches import (
    BatchDecoder,
    Hash,
    given,
    unsigned,
    unsigned_or_none,
)

END_OF_REPLAY = 2**64 - 1
"""The sequence number of the message that ends a replay."""
NUMBERS = 2**40
"""Batches are counted from 0: a thousand a second for 34 years."""

_SEQUENCE_BYTES = 8


class _Stored(msgspec.Struct, tag="BlockStored", tag_field="type"):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
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
    lookahead_token_ids: list[list[int] | None] | None = None


class _Removed(msgspec.Struct, tag="BlockRemoved", tag_field="type"):
    block_hashes: list[Hash]
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


def _neutral(event: _Stored | _Removed | _Cleared) -> KVEvent:
    if isinstance(event, _Stored):
        return _stored(event)
    if isinstance(event, _Removed):
        return BlockRemoved(
            hashes=unsigned(event.block_hashes),
            medium=event.medium,
            group=event.group_idx,
            locality=event.locality,
        )
    return AllBlocksCleared()


def _stored(event: _Stored) -> BlockStored:
    keys, session = event.extra_keys, event.session_id
    try:
        token_ids = pack_ids(event.token_ids)
    except ValueError as error:
        raise ValueError("at `$.token_ids`") from error
    return BlockStored(
        hashes=unsigned(event.block_hashes),
        parent=unsigned_or_none(event.parent_block_hash),
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
        tells_salt=keys is not None or not _tells_no_keys(event),
        lookahead=_lookahead(event.lookahead_token_ids),
    )


def _tells_no_keys(event: _Stored) -> bool:
    """Is a release likely that tells none of any block? Tiers may do without."""
    return isinstance(event, _StoredArray) and event.medium in (None, "GPU")


def _lookahead(
    lists: list[list[int] | None] | None,
) -> tuple[tuple[int, ...] | None, ...] | None:
    if not lists or not any(lists):
        return None
    return tuple([tuple(ids) if ids else None for ids in lists])


_DECODER = BatchDecoder(
    maps=[_Stored | _Removed | _Cleared],
    arrays=[_StoredArray | _RemovedArray | _ClearedArray],
    fields={
        "BlockStored": _Stored.__struct_fields__,
        "BlockRemoved": _Removed.__struct_fields__,
        "AllBlocksCleared": (),
    },
    neutral=_neutral,
)


def decode_batch(payload: bytes) -> EventBatch:
    """The events of one payload; a broken event is skipped and its reason kept.

    Raises UndecodableBatch where the payload is no batch at all, and nothing else.
    """
    return _DECODER.decode(payload)


def encode_batch(batch: EventBatch) -> bytes:
    """A payload as vLLM 0.32 writes it: map events, absent optional fields left out.

    Raises TypeError for an event that vLLM does not have.
    """
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
        } | given(group_idx=event.group, locality=event.locality)
    if not isinstance(event, BlockStored):
        raise TypeError(f"vLLM has no {type(event).__name__}")
    return {
        "type": "BlockStored",
        "block_hashes": event.hashes,
        "parent_block_hash": event.parent,
        "token_ids": unpack_ids(event.token_ids),
        "block_size": event.block_size,
        "lora_id": event.adapter_id,
        "medium": event.medium,
        "lora_name": event.adapter,
    } | given(
        extra_keys=event.extra_keys,
        group_idx=event.group,
        kv_cache_spec_kind=event.group_kind,
        locality=event.locality,
        session_id=event.session_id,
        lookahead_token_ids=event.lookahead,
    )


def decode_frames(frames: Sequence[bytes]) -> tuple[bytes, int, bytes]:
    """(topic, sequence, payload) of a live or a replayed ZMQ message.

    Live: topic, sequence, payload. Replayed: an empty frame first; before vLLM 0.26 no
    topic. A replay ends with sequence `END_OF_REPLAY` and an empty payload, or with two
    empty frames. Raises UndecodableBatch on anything else; also on a number that nobody
    counts up to, which would be a gap of as many batches.
    """
    if len(frames) == 2 and not any(frames):
        return b"", END_OF_REPLAY, b""
    if len(frames) not in (3, 4):
        raise UndecodableBatch(f"{len(frames)} frames")
    topic, sequence, payload = frames[-3:]
    if len(sequence) != _SEQUENCE_BYTES:
        raise UndecodableBatch(f"a sequence number of {len(sequence)} bytes")
    number = int.from_bytes(sequence, "big")
    if NUMBERS <= number < END_OF_REPLAY:
        raise UndecodableBatch(f"a sequence number of {number}")
    return topic, number, payload


def encode_frames(topic: bytes, sequence: int, payload: bytes) -> list[bytes]:
    """The frames of a live message."""
    return [topic, sequence.to_bytes(_SEQUENCE_BYTES, "big"), payload]
