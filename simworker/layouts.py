"""Payloads as older releases wrote them: events as arrays, without the later fields."""

from collections.abc import Mapping, Sequence

from msgspec import msgpack

_STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
    "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)  # fmt: skip
_SGLANG = (*_STORED[:6], "cache_salt", "session_id", "lora_name")
_NAMES = ("block_hashes",)
_REMOVED = ("block_hashes", "medium", "group_idx")

# So many have no default, and are there though they are null.
_ALWAYS = {"BlockStored": 7, "BlockRemoved": 2, "AllBlocksCleared": 0}

Layout = Mapping[str, Sequence[str]]


def _layout(stored: Sequence[str], removed: Sequence[str]) -> Layout:
    return {"BlockStored": stored, "BlockRemoved": removed, "AllBlocksCleared": ()}


LAYOUTS: Mapping[str, Layout | None] = {
    "maps": None,
    "0.9": _layout(_STORED[:5], _NAMES),
    "0.10": _layout(_STORED[:6], _REMOVED[:2]),
    "0.14": _layout(_STORED[:7], _REMOVED[:2]),
    "0.17": _layout(_STORED[:8], _REMOVED[:2]),
    "0.20": _layout(_STORED[:9], _REMOVED),
    "0.22": _layout(_STORED, _REMOVED),
    "sglang-arrays": _layout(_SGLANG, _REMOVED[:2]),
}
"""Which fields an event has, by the vLLM release that first wrote it so."""


def as_arrays(payload: bytes, layout: Layout) -> bytes:
    """A payload of map events in another layout; trailing nulls are left out."""
    timestamp, events, rank = msgpack.decode(payload)
    return msgpack.encode([timestamp, [_array(e, layout) for e in events], rank])


def _array(event: Mapping[str, object], layout: Layout) -> list[object]:
    kind = str(event["type"])
    values = [event.get(name) for name in layout[kind]]
    while len(values) > _ALWAYS[kind] and values[-1] is None:
        values.pop()
    return [kind, *values]
