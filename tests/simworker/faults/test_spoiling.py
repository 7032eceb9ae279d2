"""Spoilt payloads: what a decoder of the gateway makes of each."""

import json

import pytest

from kvindex.blocks import pack_ids
from kvindex.events import (
    BlockRemoved,
    BlockStored,
    EventBatch,
    UndecodableBatch,
)
from kvindex.wire import trtllm, vllm
from kvindex.wire.trtllm_drain import split_drain
from simworker.faults.spoiling import OVERSIZE, spoilt
from simworker.layouts import LAYOUTS, as_arrays

EVENTS = (
    BlockStored(hashes=(1,), token_ids=pack_ids([1, 2]), block_size=2, medium="GPU"),
    BlockRemoved(hashes=(2,), medium="GPU"),
)
BATCH = vllm.encode_batch(EventBatch(timestamp=1.5, events=EVENTS, rank=0))
STORED = json.dumps(trtllm.encode_event(EVENTS[0], 7)).encode()


@pytest.mark.parametrize("kind", ["malformed", "truncated"])
def test_no_batch_at_all(kind: str) -> None:
    """Nothing of it can be read."""
    with pytest.raises(UndecodableBatch):
        vllm.decode_batch(spoilt(kind, BATCH, json=False))
    drain = split_drain(b"[%b,%b]" % (STORED, spoilt(kind, STORED, json=True)))
    assert (len(drain.events), drain.undecodable) != (2, ())


def test_wrong_types() -> None:
    """A batch of broken events, maps or arrays."""
    arrays = as_arrays(BATCH, LAYOUTS["0.22"] or {})
    for payload in (BATCH, arrays):
        batch = vllm.decode_batch(spoilt("wrong_type", payload, json=False))
        assert batch.events == ()
        assert len(batch.undecodable) == 2
    event = trtllm.decode_event(spoilt("wrong_type", STORED, json=True))
    assert (event.events, event.undecodable) == ((), ("BlockStored.fields",))


def test_future_fields_change_nothing() -> None:
    """But for an event of a type that is not known yet."""
    batch = vllm.decode_batch(spoilt("future_fields", BATCH, json=False))
    assert (batch.events, batch.undecodable) == (EVENTS, ("unknown_type",))
    event = trtllm.decode_event(spoilt("future_fields", STORED, json=True))
    assert event == trtllm.decode_event(STORED)


def test_an_oversized_message() -> None:
    """It is as it was, and large."""
    payload = spoilt("oversized", BATCH, json=False)
    assert OVERSIZE < len(payload) < OVERSIZE + 1000
    assert vllm.decode_batch(payload).events == EVENTS


def test_what_is_not_spoilt() -> None:
    """It is as it was."""
    assert spoilt("", BATCH, json=False) == BATCH
