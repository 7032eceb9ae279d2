"""SGLang's bytes: every layout, pairs, wide ids, salts; and broken in every way."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    EventBatch,
    UndecodableBatch,
)
from kvindex.wire.sglang import decode_batch, encode_batch

STORED: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [-3488128144981237669, 5674439469042975057],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4, 5, 6, 7, 8],
    "block_size": 4,
    "lora_id": None,
    "medium": "GPU",
}


def batch_of(*events: object) -> bytes:
    """A payload with these events, however odd."""
    return msgspec.msgpack.encode([1.5, list(events), 3])


def one(event: object) -> BlockStored:
    """The only event of a batch."""
    batch = decode_batch(batch_of(event))
    assert batch.undecodable == ()
    (store,) = batch.events
    assert isinstance(store, BlockStored)
    return store


def test_maps_with_signed_hashes() -> None:
    """Signed 64-bit integers name blocks as unsigned ones do."""
    store = one(STORED | {"session_id": "s", "future": 1})
    assert store.hashes == (2**64 - 3488128144981237669, 5674439469042975057)
    assert unpack_ids(store.token_ids) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (store.medium, store.session_id, store.salt) == ("GPU", "s", None)


def test_salt_and_adapter_are_fields() -> None:
    """Position 7 of an array is the salt, where vLLM has the adapter's name."""
    store = one(STORED | {"cache_salt": "a", "lora_name": "ad"})
    assert (store.salt, store.adapter) == ("a", "ad")
    fields = ["BlockStored", [1], None, [1, 2], 2, None, "GPU", "a", None, "ad"]
    assert (one(fields).salt, one(fields).adapter) == ("a", "ad")
    assert one(fields[:5]).medium is None


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_every_layout_comes_back(arrays: bool, pairs: bool) -> None:
    """What the simulated worker encodes is decoded to the same events."""
    events = (
        AllBlocksCleared(),
        BlockStored(
            hashes=(1, 2**64 - 1),
            token_ids=pack_ids(range(8)),
            block_size=4,
            parent=2**63,
            medium="CPU_PINNED",
            salt="a",
            adapter="ad",
            session_id="s",
            salt_in_each=True,
        ),
        BlockRemoved(hashes=(2**63,), medium="DISK"),
    )
    batch = EventBatch(timestamp=2.0, events=events, rank=1)
    assert decode_batch(encode_batch(batch, pairs=pairs, arrays=arrays)) == batch


def test_pairs_are_windows() -> None:
    """EAGLE: a page of p pairs is indexed by the first id of each."""
    pairs = [[i, i + 1] for i in range(1, 9)]
    store = one(STORED | {"token_ids": pairs})
    assert unpack_ids(store.token_ids) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert store.extra_keys is None


def test_placeholders_of_media_are_no_text() -> None:
    """Ids beyond 32 bits give their page, and only it, an extra key."""
    wide = [1, 2, 3, 4, 5, 2**61 + 9, 7, 8]
    store = one(STORED | {"token_ids": wide})
    assert store.extra_keys is not None
    assert store.extra_keys[0] is None
    assert store.extra_keys[1]
    other = one(STORED | {"token_ids": [*wide[:5], 2**60 + 9, 7, 8]})
    assert other.token_ids == store.token_ids
    assert other.extra_keys != store.extra_keys


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (STORED | {"token_ids": [-1]}, "BlockStored.token_ids"),
        (STORED | {"token_ids": [[1, 2, 3]]}, "BlockStored.token_ids"),
        (STORED | {"block_size": "4"}, "BlockStored.block_size"),
        ({"type": "BlockRemoved"}, "BlockRemoved.block_hashes"),
        ({"type": "New"}, "unknown_type"),
        (7, "not_an_event"),
    ],
)
def test_broken_events_are_skipped(event: object, reason: str) -> None:
    """The others of the batch are read."""
    good = {"type": "AllBlocksCleared"}
    batch = decode_batch(batch_of(event, good))
    assert (batch.undecodable, batch.events) == ((reason,), (AllBlocksCleared(),))


def test_events_that_sglang_does_not_have() -> None:
    """Are not encoded."""
    batch = EventBatch(timestamp=0.0, events=(BlockUpdated(hash=1),))
    with pytest.raises(TypeError):
        encode_batch(batch)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=70),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from([*STORED, "cache_salt", "lora_name"]), ANY),
    st.lists(ANY, max_size=6),
)
def test_arbitrary_fields(fields: dict[str, Any], array: list[Any]) -> None:
    """Any value in any field, in both layouts: one event or one reason each."""
    payload = batch_of(STORED | fields, ["BlockStored", *array], ["BlockRemoved"])
    batch = decode_batch(payload)
    assert len(batch.events) + len(batch.undecodable) == 3


def decoded(payload: bytes) -> None:
    """A batch, or the one error."""
    with contextlib.suppress(UndecodableBatch):
        decode_batch(payload)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(payload: bytes) -> None:
    """Nothing but UndecodableBatch is ever raised."""
    decoded(payload)


@given(st.integers(0, 400), st.integers(0, 255))
def test_flipped_bytes(position: int, value: int) -> None:
    """A batch with one wrong byte is decoded in part or refused."""
    payload = bytearray(batch_of(STORED, STORED | {"token_ids": [[1, 2]] * 8}))
    payload[position % len(payload)] = value
    decoded(bytes(payload))
