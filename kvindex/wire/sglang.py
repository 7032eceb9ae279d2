"""SGLang's KV-event stream: msgpack payloads, to and from neutral events.

Frames and envelope are as vLLM's (`vllm.decode_frames`, `batches.py`), hashes are
signed. What differs, besides field names:

- Workers that speculate with EAGLE give pairs `[t_j, t_j+1]` as `token_ids`: a page of
  p pairs depends on p + 1 tokens. It is indexed by its first p; where two prompts part
  just behind a page, one page too many is believed held.
- Placeholders of media are ids of up to 62 bits. A page with such ids gets a digest of
  them as an extra key, so it is never taken for one of text.
- The last page of a chain may be short and is then an event of its own.

Read in the sources of 0.5.23. Not here: what an event means for the index, and sockets.
"""

from array import array

import msgspec
from msgspec import msgpack
from xxhash import xxh3_128_digest

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    ExtraKeys,
    KVEvent,
)
from kvindex.wire.batches import (
    BatchDecoder,
    Hash,
    given,
    unsigned,
    unsigned_or_none,
)

_U32 = 2**32 - 1
_SIGN = 2**63


class _Stored(msgspec.Struct, tag="BlockStored", tag_field="type"):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    cache_salt: str | None = None
    session_id: object = None
    lora_name: str | None = None


class _StoredPairs(_Stored, tag="BlockStored", tag_field="type"):
    token_ids: list[tuple[int, int]]  # type: ignore[assignment]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """`token_ids` for what they are."""
        return self.token_ids


class _Removed(msgspec.Struct, tag="BlockRemoved", tag_field="type"):
    block_hashes: list[Hash]
    medium: str | None = None


class _Cleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type"):
    pass


class _StoredArray(_Stored, tag="BlockStored", array_like=True):
    pass


class _StoredPairsArray(_StoredPairs, tag="BlockStored", array_like=True):
    pass


class _RemovedArray(_Removed, tag="BlockRemoved", array_like=True):
    pass


class _ClearedArray(_Cleared, tag="AllBlocksCleared", array_like=True):
    pass


def _neutral(event: _Stored | _Removed | _Cleared) -> KVEvent:
    if isinstance(event, _Stored):
        return _stored(event)
    if isinstance(event, _Removed):
        return BlockRemoved(hashes=unsigned(event.block_hashes), medium=event.medium)
    return AllBlocksCleared()


def _stored(event: _Stored) -> BlockStored:
    session = event.session_id
    token_ids, extra_keys = _ids_of(event)
    return BlockStored(
        hashes=unsigned(event.block_hashes),
        parent=unsigned_or_none(event.parent_block_hash),
        token_ids=token_ids,
        block_size=event.block_size,
        medium=event.medium,
        adapter=event.lora_name,
        adapter_id=event.lora_id,
        salt=event.cache_salt or None,
        salt_in_each=True,
        extra_keys=extra_keys,
        session_id=session if isinstance(session, str) else None,
    )


def _ids_of(event: _Stored) -> tuple[bytes, tuple[ExtraKeys, ...] | None]:
    """Packed ids, and an extra key for each page with an id beyond 32 bits."""
    ids = event.token_ids
    if isinstance(event, _StoredPairs):
        ids = [pair[0] for pair in event.pairs]
    try:
        return pack_ids(ids), None
    except ValueError:
        pass
    try:
        wide = array("Q", ids)
    except OverflowError as error:
        raise ValueError("at `$.token_ids`") from error
    size = max(1, event.block_size)
    pages = [wide[start : start + size] for start in range(0, len(wide), size)]
    keys = [(xxh3_128_digest(p),) if max(p) > _U32 else None for p in pages]
    return pack_ids([token & _U32 for token in ids]), tuple(keys)


_FIELDS = _Stored.__struct_fields__
_DECODER = BatchDecoder(
    maps=[_Stored | _Removed | _Cleared, _StoredPairs | _Removed | _Cleared],
    arrays=[
        _StoredArray | _RemovedArray | _ClearedArray,
        _StoredPairsArray | _RemovedArray | _ClearedArray,
    ],
    fields={
        "BlockStored": _FIELDS,
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


def encode_batch(
    batch: EventBatch, *, pairs: bool = False, arrays: bool = False
) -> bytes:
    """A payload as SGLang 0.5.23 writes it: map events, absent fields left out.

    `pairs` as workers with EAGLE do (the id behind the last one is given as 0),
    `arrays` as older releases. Raises TypeError for an event that SGLang does not have.
    """
    maps = [_wire(event, pairs) for event in batch.events]
    events = [_as_array(event) for event in maps] if arrays else maps
    return msgpack.encode([batch.timestamp, events, batch.rank])


def _wire(event: KVEvent, pairs: bool) -> dict[str, object]:
    if isinstance(event, AllBlocksCleared):
        return {"type": "AllBlocksCleared"}
    if isinstance(event, BlockRemoved):
        hashes = [_signed(name) for name in event.hashes]
        return {"type": "BlockRemoved", "block_hashes": hashes} | given(
            medium=event.medium
        )
    if not isinstance(event, BlockStored):
        raise TypeError(f"SGLang has no {type(event).__name__}")
    ids = unpack_ids(event.token_ids)
    return {
        "type": "BlockStored",
        "block_hashes": [_signed(name) for name in event.hashes],
        "parent_block_hash": None if event.parent is None else _signed(event.parent),
        "token_ids": [*zip(ids, [*ids[1:], 0], strict=True)] if pairs else ids,
        "block_size": event.block_size,
        "lora_id": event.adapter_id,
    } | given(
        medium=event.medium,
        cache_salt=event.salt,
        session_id=event.session_id,
        lora_name=event.adapter,
    )


def _as_array(event: dict[str, object]) -> list[object]:
    """The same fields by position, trailing ones left out."""
    fields = _FIELDS if event["type"] == "BlockStored" else _Removed.__struct_fields__
    array_ = [event["type"], *(event.get(field) for field in fields)]
    while array_[-1] is None:
        array_.pop()
    return array_ if len(event) > 1 else [event["type"]]


def _signed(name: EngineHash) -> EngineHash:
    return name - 2 * _SIGN if isinstance(name, int) and name >= _SIGN else name
