"""vLLM's bytes, broken in every way: one error, or events and reasons."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvindex.events import (
    EventBatch,
    UndecodableBatch,
)
from kvindex.wire.vllm import (
    decode_batch,
    encode_batch,
)
from tests.kvindex.engine import CLEARED
from tests.kvindex.test_wire_vllm import STORED, batch_of


def survive(payload: bytes) -> None:
    """Decode: a batch, or the one error."""
    with contextlib.suppress(UndecodableBatch):
        assert isinstance(decode_batch(payload), EventBatch)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(payload: bytes) -> None:
    """Nothing but UndecodableBatch is ever raised."""
    survive(payload)
    survive(b"\x93\xcb" + bytes(8) + b"\x91" + payload)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU"]),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(max_size=5) | st.just("type"), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(st.lists(TREES, max_size=4), SCALARS)
def test_arbitrary_structures(events: list[Any], rank: object) -> None:
    """Any msgpack in place of an event gives events and reasons, one each."""
    batch = decode_batch(batch_of(*events, rank=rank))
    assert len(batch.events) + len(batch.undecodable) == len(events)


@given(
    st.dictionaries(st.sampled_from([*STORED, "medium", "extra_keys"]), TREES),
    st.lists(TREES, max_size=9),
)
def test_arbitrary_fields(fields: dict[str, Any], array: list[Any]) -> None:
    """Any value in any field, in both layouts; the batch goes on."""
    odd = STORED | fields | {"type": "BlockStored"}
    payload = batch_of(odd, ["BlockStored", *array], ["AllBlocksCleared"])
    batch = decode_batch(payload)
    assert batch.events[-1] == CLEARED
    encode_batch(batch)


@given(st.integers(0, 300), st.integers(0, 255))
def test_flipped_bytes(position: int, value: int) -> None:
    """A batch with one wrong byte is decoded in part or refused."""
    payload = bytearray(batch_of(STORED, STORED, ["BlockRemoved", [b"x" * 32]]))
    payload[position % len(payload)] = value
    survive(bytes(payload))
