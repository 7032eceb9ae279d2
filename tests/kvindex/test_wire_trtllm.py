"""TensorRT-LLM's JSON: drains taken apart, events of every release, and broken ones."""

import json

import msgspec
import pytest

from kvindex.blocks import pack_ids, unpack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EventBatch,
    KVEvent,
    UndecodableBatch,
)
from kvindex.wire import vllm
from kvindex.wire.trtllm import decode_batch, decode_event, encode_event
from kvindex.wire.trtllm_drain import split_drain
from kvindex.wire.trtllm_hashes import v1_block_key, v2_root, v2_sha256

A = v1_block_key([1, 2, 3, 4])
B = v1_block_key([5, 6, 7, 8], A)


def token(token_id: int | str, extra: int = 0) -> dict[str, object]:
    """One token as the serializer writes it."""
    return {"type": "unique_token", "token_id": token_id, "token_extra_id": extra}


def block(name: int | str, *ids: int | str, **fields: object) -> dict[str, object]:
    """One block of a stored event."""
    tokens = [token(token_id) for token_id in ids]
    head = {"type": "stored_block", "block_hash": name, "tokens": tokens}
    return head | {"cache_level": 0, "priority": 35} | fields


def stored(*blocks: object, parent: object = None) -> dict[str, object]:
    """The data of a stored event."""
    return {"type": "stored", "parent_hash": parent, "blocks": list(blocks)}


def event(data: object, **fields: object) -> bytes:
    """A whole event."""
    item = {"event_id": 3, "data": data, "window_size": 4096} | fields
    return json.dumps(item).encode()


def only(payload: bytes, algorithm: str | None = None) -> KVEvent:
    """The one event of it."""
    batch = decode_event(payload, algorithm)
    assert batch.undecodable == ()
    (found,) = batch.events
    return found


CHAIN = stored(block(A, 1, 2, 3, 4), block(B, 5, 6, 7, 8))


def test_a_chain() -> None:
    """Names, ids, group, window; base blocks are recognised."""
    found = only(event(CHAIN, layer_group_id=1, attention_dp_rank=2))
    assert found == BlockStored(
        hashes=(A, B),
        token_ids=pack_ids(range(1, 9)),
        block_size=4,
        medium="GPU",
        group=1,
        window=4096,
    )
    assert decode_event(event(CHAIN, attention_dp_rank=2)).rank == 2


def test_names_in_hex() -> None:
    """Digests, as v2_sha256 spells them; hex digits for ids of media."""
    digest = v2_sha256([1, 2, 3, 4], v2_root())
    after = v2_sha256([5, 6, 7, 8], digest)
    blocks = (block(digest.hex(), 1, 2, 3, 4), block(after.hex(), 5, 6, 7, 8))
    found = only(event(stored(*blocks), hash_algo="v2_sha256"))
    assert isinstance(found, BlockStored)
    assert (found.hashes, found.foreign) == ((digest, after), False)
    media = only(event(stored(block("ab", "ff" * 32, 151, 152, 153))))
    assert isinstance(media, BlockStored)
    assert media.extra_keys == (((0, "ff" * 32, 0),),)
    assert not media.foreign


def test_partial_tail_blocks_are_events_of_their_own() -> None:
    """With their own length, behind their parent; as are blocks of another medium."""
    tail = block(9, 9, 10)
    moved = block(11, 1, 2, 3, 4, cache_level=1)
    batch = decode_event(event(stored(*CHAIN["blocks"], tail, moved)))  # type: ignore[misc]
    assert [
        (e.block_size, e.parent, e.medium, len(e.hashes))
        for e in batch.events
        if isinstance(e, BlockStored)
    ] == [(4, None, "GPU", 2), (2, B, "GPU", 1), (4, 9, "CPU", 1)]


def test_blocks_of_adapters_and_salts_are_foreign() -> None:
    """Their events tell neither; a salt that is told is used."""
    lora = v1_block_key([1, 2, 3, 4], adapter=7)
    found = only(event(stored(block(lora, 1, 2, 3, 4))))
    assert isinstance(found, BlockStored)
    assert found.foreign
    salted = only(event(stored(block(A, 1, 2, 3, 4, cache_salt="a"))))
    assert isinstance(salted, BlockStored)
    assert (salted.salt, salted.foreign) == ("a", True)


def test_media_keys_are_extra_keys() -> None:
    """Such blocks are never taken for those of text."""
    keys = [{"type": "mm_key", "hash": "aa", "start_offset": 5, "uuid": None}]
    found = only(event(stored(block(A, 1, 2, mm_keys=keys), block(B, 3, 4))))
    assert isinstance(found, BlockStored)
    assert found.extra_keys == ((("aa", 5),), None)
    assert not found.foreign
    extra = stored(block(A) | {"tokens": [token(1, 7), token(2)]})
    assert only(event(extra)).extra_keys == (((0, 1, 7),),)  # type: ignore[union-attr]


def test_removals_are_from_any_medium() -> None:
    """The engine does not say where the block was."""
    found = only(event({"type": "removed", "block_hashes": [-1, "0a"]}))
    assert found == BlockRemoved(
        hashes=(2**64 - 1, b"\n"), any_medium=True, window=4096
    )


def test_updates() -> None:
    """Moves between tiers; null diffs change nothing."""
    diff = {"type": "event_diff", "new_value": 1, "old_value": 0}
    data = {"type": "updated", "block_hash": 5, "cache_level": diff, "priority": None}
    assert only(event(data)) == BlockUpdated(
        hash=5, medium_before="GPU", medium="CPU", window=4096
    )
    found = only(event(data | {"cache_level": None, "priority": diff}))
    assert found == BlockUpdated(hash=5, window=4096)


def test_created() -> None:
    """The blocks of each level."""
    data = {"type": "created", "num_blocks_per_cache_level": [100, 20]}
    expected = CacheCreated(blocks_per_level=(100, 20), window=4096)
    assert only(event(data)) == expected


def test_all_cleared() -> None:
    """What a hole in the events is told by: no more is known than that."""
    assert only(event({"type": "all_cleared"})) == AllBlocksCleared(lost=True)


def test_a_drain_is_taken_apart() -> None:
    """By rank and id, in order; lists in the list are part of it."""
    body = b"[%s, [[%s], 7], {}]" % (event(CHAIN), event(CHAIN, attention_dp_rank=1))
    drain = split_drain(body)
    assert [(e.rank, e.event_id) for e in drain.events] == [(0, 3), (1, 3)]
    assert drain.undecodable == ("event_id", "event_id")
    assert only(bytes(drain.events[0].payload)) == only(event(CHAIN))
    assert split_drain(b"[]").events == ()


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[", b"\xff", b"[" * 5000])
def test_what_is_no_drain(body: bytes) -> None:
    """Has one reason and no events."""
    drain = split_drain(body)
    assert (drain.events, set(drain.undecodable)) == ((), {"body"})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"type": "new"}, "unknown_type"),
        ({"type": "stored"}, "BlockStored.fields"),
        (stored(block("xyz", 1, 2)), "BlockStored.fields"),
        (stored(block("", 1, 2)), "BlockStored.fields"),
        (stored(block(1, -1)), "BlockStored.fields"),
        (stored(block(1, 2**32)), "BlockStored.fields"),
        ({"type": "removed", "block_hashes": None}, "BlockRemoved.fields"),
        ({"type": "updated"}, "BlockUpdated.fields"),
        ({"type": "created"}, "CacheCreated.fields"),
    ],
)
def test_broken_events(data: object, reason: str) -> None:
    """Are skipped with a reason."""
    batch = decode_event(event(data))
    assert (batch.events, batch.undecodable) == ((), (reason,))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"data":{}}', b"\xff"])
def test_what_is_no_event(payload: bytes) -> None:
    """Raises the one error."""
    with pytest.raises(UndecodableBatch):
        decode_event(payload)


@pytest.mark.parametrize(
    "neutral",
    [
        BlockStored(
            hashes=(A, B),
            token_ids=pack_ids(range(1, 9)),
            block_size=4,
            medium="GPU",
            group=1,
            window=64,
        ),
        BlockStored(
            hashes=(b"\x01" * 32,),
            parent=b"\x02" * 32,
            token_ids=pack_ids([1]),
            block_size=1,
            medium="CPU",
            salt="s",
            foreign=True,
        ),
        BlockRemoved(hashes=(1, b"\x02"), any_medium=True, group=0),
        BlockUpdated(hash=4, medium_before="CPU", medium="GPU"),
        BlockUpdated(hash=4),
        CacheCreated(blocks_per_level=(3, 4), window=12),
    ],
)
def test_what_the_simulated_worker_encodes_comes_back(neutral: KVEvent) -> None:
    """Each kind of event, with its optional fields."""
    item = encode_event(neutral, 8, rank=2)
    assert (item["event_id"], item["attention_dp_rank"]) == (8, 2)
    assert only(json.dumps(item).encode()) == neutral


def test_options_of_the_encoder() -> None:
    """A window and an algorithm for events that name none; no clearing exists."""
    item = encode_event(CacheCreated(), 0, window_size=7, hash_algo="v1_block_key")
    assert (item["window_size"], item["hash_algo"]) == (7, "v1_block_key")
    with pytest.raises(TypeError):
        encode_event(AllBlocksCleared(), 0)


def test_the_zmq_form() -> None:
    """As vLLM's maps, with signed hashes; blocks that are not base are foreign."""
    base = BlockStored(hashes=(A,), token_ids=pack_ids([1, 2, 3, 4]), block_size=4)
    other = msgspec.structs.replace(base, hashes=(A + 1,))
    lora = msgspec.structs.replace(other, adapter="ad")
    batch = EventBatch(
        timestamp=1.0, events=(base, other, lora, AllBlocksCleared()), rank=0
    )
    found = decode_batch(vllm.encode_batch(batch)).events
    assert found == (
        base,
        msgspec.structs.replace(other, foreign=True),
        lora,
        AllBlocksCleared(),
    )


def test_ids_survive() -> None:
    """Up to 32 bits."""
    found = only(event(stored(block(1, 0, 2**32 - 1))))
    assert isinstance(found, BlockStored)
    assert unpack_ids(found.token_ids) == [0, 2**32 - 1]
