"""Event batches in msgpack: the envelope that vLLM and SGLang share.

A payload is the array `[timestamp, events, data-parallel rank]`. An event is a map with
`type`, or in older releases an array `[type, fields...]` with the same fields in one
order and trailing ones left out. Which fields there are is each engine's own file; a
broken event is skipped and its reason kept, the others are read.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import msgpack

from kvindex.events import EngineHash, EventBatch, KVEvent, UndecodableBatch

UNSIGNED = 2**64 - 1
HASH_BYTES = 64
"""No engine's digests are longer."""
BROKEN = (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError)

Hash = int | Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)]


def _batch_of(event: Any) -> Any:
    """A payload with events of this type; later releases may append to it."""
    fields: list[Any] = [
        ("timestamp", float),
        ("events", list[event]),
        ("rank", object, None),
    ]
    return msgspec.defstruct("Batch", fields, array_like=True)


class _Unread(msgspec.Struct, array_like=True):
    timestamp: msgspec.Raw
    events: msgspec.Raw
    rank: object = None


_RAW = msgpack.Decoder(_batch_of(msgspec.Raw))
_UNREAD = msgpack.Decoder(_Unread)
_ANY = msgpack.Decoder()


class BatchDecoder:
    """The payloads of one engine's stream to neutral batches."""

    def __init__(
        self,
        *,
        maps: Sequence[Any],
        arrays: Sequence[Any],
        fields: Mapping[str, Sequence[str]],
        neutral: Callable[[Any], KVEvent],
    ) -> None:
        """`maps` and `arrays` are types of one event, the most likely first.

        `fields` has each event type's fields in the order of an array; `neutral` makes
        an event of what was decoded and raises ValueError where it cannot.
        """
        layouts = (*maps, *arrays)
        self._whole = [msgpack.Decoder(_batch_of(layout)) for layout in layouts]
        self._map = [msgpack.Decoder(layout) for layout in maps]
        self._array = [msgpack.Decoder(layout) for layout in arrays]
        self._fields = fields
        self._neutral = neutral

    def decode(self, payload: bytes) -> EventBatch:
        """The events of one payload.

        Raises UndecodableBatch where it is no batch at all, and nothing else.
        """
        for decoder in self._whole:
            try:
                batch = decoder.decode(payload)
                events = tuple([self._neutral(event) for event in batch.events])
            except BROKEN:
                continue
            return EventBatch(
                timestamp=batch.timestamp, events=events, rank=_rank(batch.rank)
            )
        return self._decode_singly(payload)

    def _decode_singly(self, payload: bytes) -> EventBatch:
        """The slow way, event by event: broken ones, or several layouts in one."""
        try:
            batch = _RAW.decode(payload)
        except BROKEN as error:
            raise UndecodableBatch(str(error)) from error
        events: list[KVEvent] = []
        undecodable: list[str] = []
        for raw in batch.events:
            event = self._event(raw)
            if isinstance(event, str):
                undecodable.append(event)
            else:
                events.append(event)
        return EventBatch(
            timestamp=batch.timestamp,
            events=tuple(events),
            rank=_rank(batch.rank),
            undecodable=tuple(undecodable),
        )

    def _event(self, raw: msgspec.Raw) -> KVEvent | str:
        """One event, or why it was skipped."""
        reasons = []
        for decoder in self._map if _is_map(raw) else self._array:
            try:
                return self._neutral(decoder.decode(raw))
            except BROKEN as error:
                reasons.append(self._reason(raw, error))
        return reasons[0]

    def _reason(self, raw: msgspec.Raw, error: Exception) -> str:
        """Why an event was skipped, as one of a small set of words."""
        try:
            event = _ANY.decode(raw)
        except BROKEN:
            return "not_an_event"
        kind = event.get("type") if isinstance(event, dict) else None
        if isinstance(event, list) and event:
            kind = event[0]
        if not isinstance(kind, str):
            return "not_an_event"
        if kind not in self._fields:
            return "unknown_type"
        return f"{kind}.{self._field(kind, str(error))}"

    def _field(self, kind: str, message: str) -> str:
        fields = self._fields[kind]
        named = re.search(r"`\$\.(\w+)|required field `(\w+)`", message)
        if named and (named[1] or named[2]) in fields:
            return named[1] or named[2]
        placed = re.search(r"`\$\[(\d+)\]", message)  # position 0 is the type
        if placed and 0 < int(placed[1]) <= len(fields):
            return fields[int(placed[1]) - 1]
        return "fields"


def _is_map(raw: msgspec.Raw) -> bool:
    first = memoryview(raw)[0]
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _rank(rank: object) -> int | None:
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


def rank_of(payload: bytes) -> int | None:
    """The data-parallel rank of a batch whose events are left undecoded.

    None where it has none, or is no batch.
    """
    try:
        return _rank(_UNREAD.decode(payload).rank)
    except BROKEN:
        return None


def unsigned(hashes: Sequence[int | bytes]) -> tuple[EngineHash, ...]:
    """Integers unsigned (some publishers sign them), digests as they are."""
    return tuple([h & UNSIGNED if isinstance(h, int) else h for h in hashes])


def unsigned_or_none(parent: int | bytes | None) -> EngineHash | None:
    """The same of a parent."""
    return parent & UNSIGNED if isinstance(parent, int) else parent


def given(**fields: object) -> dict[str, object]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
