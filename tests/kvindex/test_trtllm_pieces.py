"""Large drains are cut between events, or not at all."""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvindex.blocks import pack_ids
from kvindex.events import BlockStored
from kvindex.wire.trtllm import encode_event, read_head, split_drain, unread_events
from kvindex.wire.trtllm_pieces import pieces

VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.just('}, {"event_id": 1'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
EVENTS = st.lists(
    st.builds(
        lambda number, data: {"event_id": number, "data": data},
        st.integers(0, 1000),
        VALUES,
    )
)


@given(
    EVENTS,
    st.integers(1, 300),
    st.sampled_from([(", ", ": "), (",", ":"), (" ,\n ", " :  ")]),
)
def test_no_event_is_lost_or_cut(
    events: list[dict[str, Any]], size: int, separators: tuple[str, str]
) -> None:
    """However large the pieces, they have all events in their order."""
    body = json.dumps(events, separators=separators).encode()
    whole = split_drain(body)
    parts = [split_drain(piece) for piece in pieces(body, size)]
    assert tuple(event for part in parts for event in part.events) == whole.events
    assert tuple(r for part in parts for r in part.undecodable) == whole.undecodable


def test_pieces_are_small() -> None:
    """No larger than asked, but for the event in which the size is reached."""
    events = [{"event_id": n, "data": {"type": "x" * 100}} for n in range(1000)]
    sizes = [len(piece) for piece in pieces(json.dumps(events).encode(), 10_000)]
    assert max(sizes) < 10_400
    assert len(sizes) >= 10


@pytest.mark.parametrize(
    "body",
    [
        b'[{"event_id": 1}, [{"event_id": 2}, {"event_id": 3}], {"event_id": 4}]',
        b'[[{"event_id": 1}], [{"event_id": 2}]]',
        b'[{"a": 1, "event_id": 1}, {"a": 1, "event_id": 2}]',
        b'[{"event_id": 1}, {"event_id": 2}',
        b'{"event_id": 1}',
        b'"event_id"',
        b"no list",
        b"",
    ],
)
def test_other_shapes_are_left_whole(body: bytes) -> None:
    """What is no plain list of events is not cut."""
    assert list(pieces(body, 1)) == [body]


def test_no_step_of_reading_a_drain_takes_long() -> None:
    """Two prompts of 40,000 tokens: to cut, to list, and to read whose each is."""
    ids = [100_000 + number for number in range(40_000)]
    stored = BlockStored(
        hashes=tuple(range(1, 1_251)), token_ids=pack_ids(ids), block_size=32
    )
    items = [encode_event(stored, number) for number in (7, 8)]
    body = json.dumps(items).encode()
    assert len(body) > 5_000_000
    assert min(_longest_step(body) for _ in range(5)) < 0.005


def _longest_step(body: bytes) -> float:
    longest = 0.0

    def timed(step: Callable[[], Any]) -> Any:
        nonlocal longest
        begun = time.thread_time()
        result = step()
        longest = max(longest, time.thread_time() - begun)
        return result

    found, numbers = pieces(body), []
    while (piece := timed(lambda: next(found, None))) is not None:
        unread, _ = timed(partial(unread_events, piece))
        numbers += [timed(partial(read_head, raw)).event_id for raw in unread]
    assert numbers == [7, 8]
    return longest
