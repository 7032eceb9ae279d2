"""TensorRT-LLM's JSON, broken in every way: events, or reasons."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvindex.events import UndecodableBatch
from kvindex.wire.trtllm import decode_event
from kvindex.wire.trtllm_drain import split_drain
from tests.kvindex.test_wire_trtllm import CHAIN, event

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner)
    ),
    max_leaves=8,
)
DATA = st.sampled_from(
    [
        CHAIN,
        {"type": "removed", "block_hashes": [1]},
        {"type": "updated", "block_hash": 1, "cache_level": None},
        {"type": "created", "num_blocks_per_cache_level": [1]},
    ]
)
FIELDS = (
    "parent_hash",
    "blocks",
    "block_hashes",
    "block_hash",
    "cache_level",
    "num_blocks_per_cache_level",
)


@given(DATA, st.dictionaries(st.sampled_from(FIELDS), ANY), ANY)
def test_arbitrary_fields(
    data: dict[str, Any], fields: dict[str, Any], any_: Any
) -> None:
    """Any value in any field: events, or one reason."""
    batch = decode_event(event(data | fields, layer_group_id=any_))
    assert len(batch.undecodable) <= 1
    assert not (batch.events and batch.undecodable)


@given(ANY)
def test_arbitrary_bodies(value: Any) -> None:
    """Whatever JSON there is in place of a list of events."""
    drain = split_drain(json.dumps(value).encode())
    assert not drain.events or isinstance(value, list)


@given(st.integers(0, 800), st.integers(0, 255))
def test_flipped_bytes(position: int, value: int) -> None:
    """A drain with one wrong byte is read in part, or not at all."""
    body = bytearray(b"[" + event(CHAIN) + b"," + event(CHAIN) + b"]")
    body[position % len(body)] = value
    for raw in split_drain(bytes(body)).events:
        try:
            decode_event(bytes(raw.payload))
        except UndecodableBatch:
            continue
