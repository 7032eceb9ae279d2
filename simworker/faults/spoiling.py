"""Payloads that are not what they should be."""

import json as jsonlib
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import msgpack

SPOILT = ("", "malformed", "truncated", "oversized", "wrong_type", "future_fields")
OVERSIZE = 40 << 20
"""Bytes that are added to an oversized message."""

_NOT_MSGPACK = b"\xc1" * 64
_NOT_JSON = b'{"event_id": nothing}'


def spoilt(kind: str, payload: bytes, *, json: bool) -> bytes:
    """`payload` with the fault `kind`, one of `SPOILT`; "" changes nothing.

    A msgpack payload is a batch, a JSON one an event of TensorRT-LLM's.
    """
    if kind == "malformed" or (json and kind == "truncated"):
        return _NOT_JSON if json else _NOT_MSGPACK
    if kind == "truncated":
        return payload[: len(payload) // 2]
    change = _CHANGES.get(kind)
    if change is None:
        return payload
    if json:
        event = jsonlib.loads(payload)
        change(event, event.get("data", {}))
        return jsonlib.dumps(event).encode()
    batch = msgpack.decode(payload)
    events = batch[1][:1] if kind == "oversized" else batch[1]
    for event in events:
        change(event, event)
    if kind == "future_fields":
        batch[1].append({"type": "BlockPraised", "block_hashes": [1]})
        batch.append({"later": True})
    return msgpack.encode(batch)


Event = Any  # a map, or before vLLM 0.24 an array of its values


def _oversized(event: Event, data: Event) -> None:
    filler = "x" * OVERSIZE
    if isinstance(event, list):
        event.append(filler)
    else:
        event["filler"] = filler


def _wrong_type(event: Event, data: Event) -> None:
    if isinstance(event, list):
        event[1:] = [{"not": "this"}] * len(event[1:])
        return
    for name in ("block_hashes", "blocks", "block_hash", "num_blocks_per_cache_level"):
        if name in data:
            data[name] = {"not": "this"}


def _future_fields(event: Event, data: Event) -> None:
    if isinstance(event, list):
        return  # what is appended to an array is the next of its known fields
    event["announced_by"] = {"name": "a later release", "since": [9, 9]}
    data["temperature"] = 36.6


_CHANGES: Mapping[str, Callable[[Event, Event], None]] = {
    "oversized": _oversized,
    "wrong_type": _wrong_type,
    "future_fields": _future_fields,
}
