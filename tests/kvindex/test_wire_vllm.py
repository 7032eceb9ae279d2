"""vLLM's bytes: captured, of every layout, and broken in every way."""

from typing import Any

import msgspec
import pytest

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    UndecodableBatch,
)
from kvindex.wire.batches import rank_of
from kvindex.wire.vllm import (
    END_OF_REPLAY,
    decode_batch,
    decode_frames,
    encode_batch,
    encode_frames,
)
from tests.kvindex.engine import CLEARED, captured, case_file, removed, stored

STREAMS = (
    "w1_kv_events_replay_dealer",
    "w1_kv_events_live_pubconnect",
    "w2_kv_events_live_pubbind",
)
STORED: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": [1, 2],
    "block_size": 2,
    "lora_id": None,
}


def batch_of(*events: object, rank: object = 0) -> bytes:
    """A payload with these events, however odd."""
    return msgspec.msgpack.encode([1.5, list(events), rank])


def unescape(value: Any) -> Any:
    """Captured JSON back to what msgpack has."""
    if isinstance(value, dict):
        if set(value) == {"__bytes__"}:
            return bytes.fromhex(value["__bytes__"])
        return {key: unescape(item) for key, item in value.items()}
    return [unescape(item) for item in value] if isinstance(value, list) else value


def test_every_captured_batch_decodes_to_what_it_holds() -> None:
    """All 349 batches, field by field."""
    count = 0
    for _, content, decoded in captured(*STREAMS):
        batch = decode_batch(content)
        timestamp, events, rank = unescape(decoded)
        assert (batch.timestamp, batch.rank, batch.undecodable) == (timestamp, rank, ())
        for event, raw in zip(batch.events, events, strict=True):
            assert type(event).__name__ == raw["type"]
            if isinstance(event, BlockStored):
                assert list(event.hashes) == raw["block_hashes"]
                assert event.parent == raw["parent_block_hash"]
                assert unpack_ids(event.token_ids) == raw["token_ids"]
                assert event.block_size == raw["block_size"]
                assert event.group_kind == raw["kv_cache_spec_kind"]
            elif isinstance(event, BlockRemoved):
                assert list(event.hashes) == raw["block_hashes"]
                assert (event.medium, event.group) == (raw["medium"], raw["group_idx"])
        count += 1
    assert count == 349


def test_encoding_gives_the_captured_bytes_back() -> None:
    """What the simulated worker publishes is byte for byte what vLLM does."""
    for _, content, _ in captured(*STREAMS):
        assert encode_batch(decode_batch(content)) == content


def test_every_array_layout() -> None:
    """vLLM 0.9 to 0.23: the same events, fields added at the end over time."""
    expected: dict[str, dict[str, object]] = {
        "0.9.2": {"medium": None, "tells_salt": False},
        "0.10.2-0.13.0": {"tells_salt": False},
        "0.14.0-0.16.0": {
            "parent": 10,
            "adapter": "ad",
            "adapter_id": 1,
            "tells_salt": False,
        },
        "0.17.0-0.19.1": {"extra_keys": (("salt",), None)},
        "0.20.2-0.21.0": {"extra_keys": (None, None), "group": 0},
        "0.22.1-0.23.0": {
            "extra_keys": (None, None),
            "group": 0,
            "group_kind": "full_attention",
        },
    }
    for layout in case_file("legacy_array_payloads_synthetic"):
        batch = decode_batch(bytes.fromhex(layout["payload_hex"]))
        fields = expected.pop(layout["vllm_versions"])
        store = BlockStored(
            hashes=(11, 12),
            token_ids=pack_ids([1, 2, 3, 4]),
            block_size=2,
            **({"medium": "GPU"} | fields),  # type: ignore[arg-type]
        )
        remove = BlockRemoved(hashes=(11,), medium=store.medium, group=store.group)
        assert batch == EventBatch(
            timestamp=1.0, events=(remove, store, AllBlocksCleared()), rank=0
        )
    assert not expected


def test_hashes_are_unsigned_or_bytes() -> None:
    """Signed integers name the same block as unsigned ones; digests stay."""
    event = STORED | {"block_hashes": [-1, b"d", 2**64 - 2], "parent_block_hash": -5}
    store = decode_batch(batch_of(event)).events[0]
    assert isinstance(store, BlockStored)
    assert store.hashes == (2**64 - 1, b"d", 2**64 - 2)
    assert store.parent == 2**64 - 5


def test_unknown_fields_are_ignored() -> None:
    """A newer worker may say more, in maps and in arrays."""
    event = STORED | {"what": {"ever": 1}}
    assert decode_batch(batch_of(event)).undecodable == ()
    array = ["BlockRemoved", [1], "GPU", 0, "LOCAL", "tier", "more", 1]
    payload = msgspec.msgpack.encode([1, [array], 3, "more"])
    assert decode_batch(payload) == EventBatch(
        timestamp=1.0,
        events=(BlockRemoved(hashes=(1,), medium="GPU", group=0, locality="LOCAL"),),
        rank=3,
    )


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (STORED | {"token_ids": [-1, 2]}, "BlockStored.token_ids"),
        (STORED | {"token_ids": [2**32, 2]}, "BlockStored.token_ids"),
        (STORED | {"token_ids": ["a", 2]}, "BlockStored.token_ids"),
        (STORED | {"block_size": None}, "BlockStored.block_size"),
        (STORED | {"block_hashes": [1.5]}, "BlockStored.block_hashes"),
        (STORED | {"block_hashes": [b"x" * 65]}, "BlockStored.block_hashes"),
        (STORED | {"parent_block_hash": b"x" * 65}, "BlockStored.parent_block_hash"),
        (STORED | {"extra_keys": [[1], 5]}, "BlockStored.extra_keys"),
        (STORED | {"lookahead_token_ids": [1]}, "BlockStored.lookahead_token_ids"),
        ({"type": "BlockStored"}, "BlockStored.block_hashes"),
        ({"type": "BlockRemoved"}, "BlockRemoved.block_hashes"),
        (["BlockStored", [1], None, [-5], 1], "BlockStored.token_ids"),
        (["BlockStored", [1], None, [5], "1"], "BlockStored.block_size"),
        (["BlockStored", [1], None], "BlockStored.fields"),
        (["BlockRemoved", "x"], "BlockRemoved.block_hashes"),
        ({"type": "BlockMoved"}, "unknown_type"),
        (["BlockMoved", 1], "unknown_type"),
        ({"type": 5}, "not_an_event"),
        ({"kind": "BlockStored"}, "not_an_event"),
        ([], "not_an_event"),
        (None, "not_an_event"),
        (7, "not_an_event"),
        ("BlockStored", "not_an_event"),
    ],
)
def test_a_broken_event_does_not_lose_its_batch(event: Any, reason: str) -> None:
    """The others are decoded, and the broken one has a reason of a small set."""
    good = {"type": "BlockRemoved", "block_hashes": [9], "medium": "GPU"}
    batch = decode_batch(batch_of(good, event, ["AllBlocksCleared"]))
    assert batch.events == (removed(9), CLEARED)
    assert batch.undecodable == (reason,)


def test_a_deeply_nested_event_is_skipped() -> None:
    """Nesting beyond the decoder's depth is an event that cannot be read."""
    deep = b"\x91" * 5000 + b"\x90"
    payload = b"\x93\xcb" + bytes(8) + b"\x91" + deep + b"\x00"
    with pytest.raises(UndecodableBatch):
        decode_batch(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x00",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, {}]),
        msgspec.msgpack.encode(["now", []]),
        batch_of(STORED)[:-3],
        batch_of(STORED) + b"x",
        b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
    ],
)
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    """One error, no memory taken for lengths that are only claimed."""
    with pytest.raises(UndecodableBatch):
        decode_batch(payload)


@pytest.mark.parametrize("rank", [None, "x", 1.5, True, [0]])
def test_a_rank_that_is_none(rank: object) -> None:
    """The rank is a help, not a condition."""
    assert decode_batch(batch_of(rank=rank)).rank is None


def test_round_trip_of_all_fields() -> None:
    """What can be said survives encoding."""
    full = BlockStored(
        hashes=(1, b"x" * 32),
        parent=b"y",
        token_ids=pack_ids(range(4)),
        block_size=2,
        medium="CPU",
        adapter="sql",
        adapter_id=4,
        extra_keys=(("sql", ["img", 1]), None),
        group=2,
        group_kind="mla_attention",
        locality="REMOTE",
        session_id="s",
        lookahead=((4, 5), None),
    )
    gone = removed(1, group=2, medium=None, locality="REMOTE")
    events = (full, gone, CLEARED, stored(5))
    batch = EventBatch(timestamp=2.0, events=events, rank=3)
    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize("later", [(), ({"new": 1},), (None, [1, 2])])
def test_the_rank_of_a_batch_with_later_fields(later: tuple[object, ...]) -> None:
    """Releases to come may append to a batch; its rank tells whose numbers it has."""
    payload = msgspec.msgpack.encode([1.5, [STORED], 3, *later])
    assert decode_batch(payload).rank == 3
    assert rank_of(payload) == 3


@pytest.mark.parametrize(
    "content", [[1.5, []], [1.5, [], None], [1.5, [], "3"], [1.5, [], True], [1.5], {}]
)
def test_batches_without_a_rank(content: object) -> None:
    """None, as where it is no batch."""
    assert rank_of(msgspec.msgpack.encode(content)) is None


END = b"\xff" * 8
SEVEN = (7).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([b"topic", SEVEN, b"p"], (b"topic", 7, b"p")),
        ([b"", b"topic", SEVEN, b"p"], (b"topic", 7, b"p")),
        ([b"", SEVEN, b"p"], (b"", 7, b"p")),
        ([b"", b"", END, b""], (b"", END_OF_REPLAY, b"")),
        ([b"", END, b""], (b"", END_OF_REPLAY, b"")),
        ([b"", b""], (b"", END_OF_REPLAY, b"")),
    ],
)
def test_frames(frames: list[bytes], message: tuple[bytes, int, bytes]) -> None:
    """Live, replayed with and without topic, and every form of the end marker."""
    assert decode_frames(frames) == message


@pytest.mark.parametrize(
    "frames",
    [[], [b"x"], [b"x", b""], [b"t", b"short", b"p"], [b"", b"t", SEVEN, b"p", b"q"]],
)
def test_broken_frames(frames: list[bytes]) -> None:
    """Anything else is refused."""
    with pytest.raises(UndecodableBatch):
        decode_frames(frames)


def test_frames_round_trip() -> None:
    """What is sent live is read as it was."""
    assert decode_frames(encode_frames(b"t", 2**39, b"p")) == (b"t", 2**39, b"p")
