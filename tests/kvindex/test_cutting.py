"""Large payloads in pieces: the same events, however they are cut."""

import json
import random
import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack, structs

from kvindex.blocks import pack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch, KVEvent
from kvindex.wire import sglang, trtllm, vllm
from kvindex.wire.cutting import PIECE_BYTES, Piece, cut
from tests.kvindex.engine import Stream

SIZE = 4


def chain(
    blocks: int, *, seed: int = 0, parent: int | None = None, keys: bool = False
) -> BlockStored:
    """A run of blocks with ids of all lengths."""
    rng = random.Random(seed)
    ids = [rng.choice((5, 200, 60_000, 1 << 20)) for _ in range(blocks * SIZE)]
    return BlockStored(
        hashes=tuple(rng.randrange(1, 1 << 64) for _ in range(blocks)),
        parent=parent,
        token_ids=pack_ids(ids),
        block_size=SIZE,
        medium="GPU",
        extra_keys=tuple((f"k{n}",) for n in range(blocks)) if keys else None,
    )


def whole_pieces(payload: bytes, size: int) -> list[Piece]:
    """All pieces, without the steps that bring none."""
    return [piece for piece in cut(payload, size) if piece]


def joined(events: list[KVEvent], pieces: list[bool]) -> list[KVEvent]:
    """Events again as they were before they were cut; `pieces`: which go on."""
    whole: list[KVEvent] = []
    for event, goes_on in zip(events, pieces, strict=True):
        last = whole[-1] if whole and goes_on else None
        if isinstance(last, BlockStored) and isinstance(event, BlockStored):
            assert event.parent == last.hashes[-1]
            whole[-1] = structs.replace(
                last,
                hashes=last.hashes + event.hashes,
                token_ids=last.token_ids + event.token_ids,
                extra_keys=last.extra_keys and last.extra_keys + event.extra_keys,  # type: ignore[operator]
            )
        else:
            whole.append(event)
    return whole


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(40, 900),
    st.sampled_from(("maps", "arrays", "pairs", "keys")),
)
def test_batches_say_the_same_in_pieces(
    blocks: list[int], size: int, layout: str
) -> None:
    """Chains, with removals between them, of both engines in both layouts."""
    events: list[KVEvent] = []
    for number, count in enumerate(blocks):
        parent = 7 if number % 2 else None
        events.append(chain(count, seed=number, parent=parent, keys=layout == "keys"))
        events.append(BlockRemoved(hashes=(number, 9), medium="GPU"))
    batch = EventBatch(timestamp=1.0, events=tuple(events), rank=3)
    wire = vllm.encode_batch(batch)
    decode = vllm.decode_batch
    if layout in ("arrays", "pairs"):
        pairs = layout == "pairs"
        wire = sglang.encode_batch(batch, pairs=pairs, arrays=layout == "arrays")
        decode = sglang.decode_batch
    told: list[KVEvent] = []
    goes_on: list[bool] = []
    for piece in whole_pieces(wire, size):
        part = decode(piece.payload)
        assert (part.rank, part.undecodable) == (3, ())
        assert not piece.goes_on or len(part.events) == 1
        assert piece.from_root <= piece.goes_on
        told += part.events
        goes_on += [piece.goes_on] * len(part.events)
    assert joined(told, goes_on) == list(decode(wire).events)


@given(st.integers(1, 60), st.integers(60, 3000), st.sampled_from((None, 5)))
def test_events_in_json_say_the_same_in_pieces(
    blocks: int, size: int, parent: int | None
) -> None:
    """TensorRT-LLM's, of one chain."""
    event = chain(blocks, parent=parent)
    item = trtllm.encode_event(event, 3, rank=2, window_size=900)
    wire = json.dumps(item).encode()
    told: list[KVEvent] = []
    goes_on: list[bool] = []
    for piece in whole_pieces(wire, size):
        part = trtllm.decode_event(piece.payload, "none known")
        assert part.rank == 2
        assert piece.from_root == (piece.goes_on and parent is None)
        told += part.events
        goes_on.append(piece.goes_on)
    assert all(getattr(part, "window", 0) == 900 for part in told)
    joint = joined(told, goes_on)
    assert [(e.hashes, e.parent, e.token_ids) for e in joint] == [  # type: ignore[union-attr]
        (event.hashes, parent, event.token_ids)
    ]


@pytest.mark.parametrize("spell", [int, "{:016x}".format])
def test_removals_in_json_say_the_same_in_pieces(
    spell: Callable[[int], object],
) -> None:
    """TensorRT-LLM's, wherever in the event the names are."""
    names = [spell(2**62 + number) for number in range(1_000)]
    data = {"block_hashes": names, "type": "removed"}
    for fields in ({"event_id": 1, "data": data}, {"data": data, "window_size": 9}):
        wire = json.dumps(fields).encode()
        pieces = whole_pieces(wire, 500)
        assert max(len(piece.payload) for piece in pieces) < 700
        assert [piece.goes_on for piece in pieces] == [False] + [True] * (
            len(pieces) - 1
        )
        (whole,) = trtllm.decode_event(wire).events
        parts = [trtllm.decode_event(piece.payload).events[0] for piece in pieces]
        assert isinstance(whole, BlockRemoved)
        assert [name for part in parts for name in part.hashes] == [*whole.hashes]  # type: ignore[union-attr]
        assert {part.window for part in parts} == {whole.window}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "event",
    [
        {"data": {"type": "stored", "blocks": [{"pad": [1] * 5_000}]}},
        {"data": {"type": "stored", "blocks": []}, "other": [1] * 5_000},
        {"data": {"type": "removed", "block_hashes": [1], "other": [1] * 5_000}},
        {"data": {"type": "created", "num_blocks_per_cache_level": [1] * 5_000}},
        {"data": [1] * 5_000},
    ],
)
def test_other_long_lists_in_json_are_left_whole(event: object) -> None:
    """Only names and blocks can be told in parts."""
    wire = json.dumps(event).encode()
    assert [piece.payload for piece in whole_pieces(wire, 100)] == [wire]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{" * 500,
        b"\xc1" * 500,
        msgpack.encode([1.0, [["BlockStored", [1, 2], None, [1] * 500, 16]], 0]),
        msgpack.encode([1.0, [{"type": "BlockStored", "pad": "x" * 500}], 0]),
        msgpack.encode([1.0, [["BlockStored", [1] * 9, None, "x" * 400, 16]], 0]),
        msgpack.encode([1.0, [["BlockStored", [], None, [], 16, "x" * 400]], 0]),
        msgpack.encode([1.0, ["x" * 500], 0]),
        msgpack.encode([1.0, [], 0, "x" * 500]),
        msgpack.encode([1.0, [["BlockStored", [{}] * 99, {}, [1] * 99, 1]], 0]),
    ],
)
def test_what_has_another_shape_is_left_whole(payload: bytes) -> None:
    """The decoder says what is wrong with it."""
    pieces = whole_pieces(payload, 100)
    try:
        said = vllm.decode_batch(payload)
    except ValueError:
        assert [piece.payload for piece in pieces] == [payload]
        return
    assert len(pieces) == 1
    assert vllm.decode_batch(pieces[0].payload) == said


def test_a_broken_token_ends_the_cutting() -> None:
    """What comes before it counts, the rest is one undecodable event."""
    tokens: list[object] = [*range(4_000)]
    tokens[3_000] = "no token"
    event = ["BlockStored", [*range(1_000)], None, tokens, 4]
    pieces = whole_pieces(msgpack.encode([1.0, [event], 0]), 1_000)
    told = [vllm.decode_batch(piece.payload) for piece in pieces]
    assert [part.undecodable for part in told[:-1]] == [()] * (len(told) - 1)
    assert told[-1].undecodable == ("BlockStored.token_ids",)
    applied = [event for part in told for event in part.events]
    stored = [e for e in applied if isinstance(e, BlockStored)]
    assert 700 <= sum(len(event.hashes) for event in stored) <= 750


@given(st.binary(max_size=200), st.integers(0, 3_000), st.booleans())
def test_damage_is_the_decoders_to_find(junk: bytes, at: int, as_json: bool) -> None:
    """Nothing is raised, and it ends, whatever bytes are in it."""
    event = chain(60)
    wire = vllm.encode_batch(EventBatch(timestamp=1.0, events=(event,), rank=0))
    if as_json:
        wire = json.dumps(trtllm.encode_event(event, 1)).encode()
    damaged = wire[:at] + junk + wire[at + len(junk) :]
    for piece in whole_pieces(damaged, 200):
        assert len(piece.payload) <= len(damaged) + 100


def test_a_large_report_in_full_adds_no_copies() -> None:
    """Blocks announced again from the root are known, also in the later pieces."""
    stream = Stream(block_size=SIZE)
    event = chain(9_000)
    stream.send(event)
    stream.send(event)
    assert stream.feed.counters.events == {"BlockStored": 2}
    stream.send(BlockRemoved(hashes=event.hashes, medium="GPU"))
    assert stream.owner.blocks == 0


def test_a_large_chain_that_does_not_count_is_rejected_once() -> None:
    """Its later pieces are no orphans."""
    stream = Stream(block_size=SIZE)
    stream.send(msgspec.structs.replace(chain(9_000), group_kind="sliding_window"))
    counters = stream.feed.counters
    assert (counters.rejected, counters.orphans) == ({"group_kind": 1}, 0)


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_no_piece_takes_long(engine: str) -> None:
    """A prompt of 40,000 tokens: each step a small part of decoding it whole."""
    event = chain(10_000)
    wire = vllm.encode_batch(EventBatch(timestamp=1.0, events=(event,), rank=0))
    if engine == "trtllm":
        wire = json.dumps(trtllm.encode_event(event, 1)).encode()
    assert len(wire) > 4 * PIECE_BYTES
    longest = min(_longest_step(wire, engine) for _ in range(5))
    assert longest < 0.005


def _longest_step(wire: bytes, engine: str) -> float:
    decode = trtllm.decode_event if engine == "trtllm" else vllm.decode_batch
    longest, pieces = 0.0, cut(wire)
    while True:
        begun = time.thread_time()
        piece = next(pieces, "over")
        cut_s = time.thread_time() - begun
        if piece == "over":
            return longest
        if not isinstance(piece, Piece):
            longest = max(longest, cut_s)
            continue
        begun = time.thread_time()
        decode(piece.payload)
        longest = max(longest, cut_s, time.thread_time() - begun)
