"""Large drains are taken apart in steps, whatever their shape."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json as strict

from kvindex.blocks import pack_ids
from kvindex.events import BlockRemoved, BlockStored
from kvindex.wire.cutting import cut
from kvindex.wire.trtllm import decode_event, encode_event
from kvindex.wire.trtllm_drain import RawEvent, read_drain, split_drain

STEP_S = 0.005
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=9) | st.just('}, {"event_id": 1, [\\'),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
EVENTS = st.lists(
    st.builds(
        lambda number, data, last: (
            {"data": data, "event_id": number}
            if last
            else {"event_id": number, "data": data}
        ),
        st.integers(0, 1000),
        VALUES,
        st.booleans(),
    ),
    max_size=6,
)


@given(
    st.lists(EVENTS | EVENTS.map(lambda events: [events]), max_size=4),
    st.integers(30, 300),
    st.sampled_from([(", ", ": "), (",", ":"), (" ,\n ", " :  ")]),
)
def test_no_event_is_lost_or_cut(
    lists: list[list[Any]], size: int, separators: tuple[str, str]
) -> None:
    """However small the steps: all events as they came, in their order."""
    body = json.dumps(lists, separators=separators).encode()
    drain = split_drain(body, size)
    expected = [event for events in lists for event in _flat(events)]
    assert [event.event_id for event in drain.events] == [
        e["event_id"] for e in expected
    ]
    assert [json.loads(bytes(event.payload)) for event in drain.events] == expected
    assert drain.undecodable == ()


def _flat(events: list[Any]) -> list[Any]:
    if events and isinstance(events[0], list):
        return [event for inner in events for event in _flat(inner)]
    return events


@given(st.binary(max_size=4), st.integers(0, 400), st.integers(20, 100))
def test_damaged_drains(junk: bytes, at: int, size: int) -> None:
    """What is still JSON has the same events in small steps as in one."""
    events = [{"event_id": n, "data": {"type": "x", "a": [n, {}]}} for n in range(9)]
    body = json.dumps([events[:4], *events]).encode()
    body = body[:at] + junk + body[at + len(junk) :]
    drain = split_drain(body, size)
    try:
        strict.decode(body)
    except ValueError:
        return
    assert drain == split_drain(body)


def test_what_comes_before_the_damage_counts() -> None:
    """A drain that is cut off, or goes on with something else."""
    events = b",".join(b'{"event_id": %d, "data": {}}' % n for n in range(100))
    for end in (b', {"event_id": 7', b', {"event_id" 7}]', b"]]", b"] x", b", x}"):
        drain = split_drain(b"[" + events + end, 200)
        assert len(drain.events) >= 90
        assert drain.undecodable == ("body",)


def test_events_that_are_large_in_other_ways() -> None:
    """Read, if their longest value is not longer than some steps."""
    deep: Any = 1
    for _ in range(50):
        deep = [deep]
    odd = {"a": [deep] * 9, "b": "x" * 900, "event_id": 5, "attention_dp_rank": 1}
    many = {f"k{n}": "v" * (n % 90) for n in range(300)} | {"event_id": 6}
    drain = split_drain(json.dumps([odd, many, {"event_id": 7}]).encode(), 200)
    assert [(e.rank, e.event_id) for e in drain.events] == [(1, 5), (0, 6), (0, 7)]
    too_long = split_drain(json.dumps([{"b": "x" * 9_000}, {}]).encode(), 200)
    assert too_long.undecodable == ("body",)


def stored(number: int, blocks: int, *, keys_reversed: bool = False) -> dict[str, Any]:
    """An event of a chain of blocks of 32 tokens."""
    ids = [100_000 + position for position in range(blocks * 32)]
    event = BlockStored(
        hashes=tuple(range(1, blocks + 1)), token_ids=pack_ids(ids), block_size=32
    )
    item = encode_event(event, number, window_size=4096)
    return dict(reversed(item.items())) if keys_reversed else item


def test_of_two_lists_of_one_name_the_last_counts() -> None:
    """As in any JSON."""
    first = f'"block_hashes": {[*range(99)]}, "type"'
    text = json.dumps(removed(9)).replace('"type"', first)
    pieces = [piece for piece in cut(text.encode(), 40) if piece]
    events = [e for piece in pieces for e in decode_event(piece.payload).events]
    names = [name for e in events if isinstance(e, BlockRemoved) for name in e.hashes]
    assert names == [2**62 + name for name in range(9)]


def removed(names: int) -> dict[str, Any]:
    """An event that takes away so many blocks."""
    hashes = [2**62 + name for name in range(names)]
    return {"event_id": 0, "data": {"type": "removed", "block_hashes": hashes}}


LARGE: dict[str, Callable[[], list[Any]]] = {
    "one": lambda: [stored(0, 4_000)],
    "one, id last": lambda: [stored(0, 4_000, keys_reversed=True)],
    "many": lambda: [stored(n, 64) for n in range(30)],
    "list in list": lambda: [[stored(n, 64) for n in range(30)]],
    "many, id last": lambda: [stored(n, 64, keys_reversed=True) for n in range(30)],
    "removed": lambda: [removed(200_000)],
}


@pytest.mark.parametrize("events", LARGE.values(), ids=LARGE)
def test_no_step_takes_long(events: Callable[[], list[Any]]) -> None:
    """To find the events, to cut each, and to decode each piece of it."""
    body = bytearray(json.dumps(events()).encode())
    assert len(body) > 3_000_000
    assert split_drain(body).events
    assert min(_longest_step(body) for _ in range(3)) < STEP_S


NOTHING: dict[str, Callable[[], bytes]] = {
    "spaces before": lambda: b" " * 20_000_000 + b"[]",
    "spaces within": lambda: b"[{" + b" " * 20_000_000 + b"}]",
    "spaces after": lambda: b"[1]" + b" " * 20_000_000,
    "empty lists": lambda: b"[" + b"[]," * 200_000 + b"1]",
    "fields": lambda: b"[{" + b'"":1,' * 1_500_000 + b'"event_id":1,"data":{}}]',
}


@pytest.mark.parametrize("body", NOTHING.values(), ids=NOTHING)
def test_no_step_takes_long_where_there_is_nothing(body: Callable[[], bytes]) -> None:
    """Space, empty lists, fields that nobody asked for: no worker sends as many."""
    text = bytearray(body())
    assert min(_longest_step(text) for _ in range(3)) < STEP_S


def _longest_step(body: bytearray) -> float:
    longest, begun = 0.0, time.thread_time()

    def done() -> None:
        nonlocal longest, begun
        longest = max(longest, time.thread_time() - begun)
        begun = time.thread_time()

    for event in read_drain(body):
        done()
        if isinstance(event, RawEvent):
            for piece in cut(event.payload):
                done()
                if piece:
                    assert not decode_event(piece.payload, "none known").undecodable
                done()
    done()
    return longest
