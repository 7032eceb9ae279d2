"""A feed under nonsense: whatever comes, it goes on, and its counts stay whole."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kvindex.feed import FeedSettings
from kvindex.owner import BLOCK_BYTES, HOLDING_BYTES
from kvindex.pages import PAGE_BYTES
from tests.kvindex.engine import Stream

HASH = st.one_of(
    st.integers(-3, 6), st.binary(max_size=2), st.sampled_from([2**64 - 1, -(2**63)])
)
LEAF = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.floats(),
)
ODD = st.one_of(LEAF, st.lists(LEAF, max_size=3), st.dictionaries(LEAF, LEAF))
MEDIUM = st.sampled_from(["GPU", "CPU", "disk", None])
GROUP = st.one_of(st.none(), st.integers(-1, 2))
KIND = st.sampled_from([None, "full_attention", "mla_attention", "mamba"])


@st.composite
def store(draw: st.DrawFn) -> dict[str, Any]:
    """A store that is well formed more often than not."""
    size = draw(st.sampled_from([1, 2, 8, 16, 16, 16, 17, 0, -1]))
    hashes = draw(st.lists(HASH, max_size=4))
    label = draw(st.integers(0, 2))
    event: dict[str, Any] = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": draw(st.one_of(st.none(), HASH)),
        "token_ids": [label] * (max(size, 0) * len(hashes)),
        "block_size": size,
        "medium": draw(MEDIUM),
        "group_idx": draw(GROUP),
        "kv_cache_spec_kind": draw(KIND),
        "extra_keys": draw(
            st.one_of(st.none(), st.lists(st.lists(ODD, max_size=2), max_size=3))
        ),
    }
    if draw(st.integers(0, 9)) == 0:
        event[draw(st.sampled_from(sorted(event)))] = draw(ODD)
    return event


REMOVE = st.builds(
    lambda hashes, medium, group: {
        "type": "BlockRemoved",
        "block_hashes": hashes,
        "medium": medium,
        "group_idx": group,
    },
    st.lists(HASH, max_size=4),
    MEDIUM,
    GROUP,
)
EVENT = st.one_of(
    store(),
    store(),
    store(),
    REMOVE,
    REMOVE,
    st.just({"type": "AllBlocksCleared"}),
    ODD,
)
MESSAGE = st.one_of(
    st.lists(EVENT, max_size=4).map(lambda events: msgspec.msgpack.encode([0, events])),
    st.binary(max_size=30),
)
LAST_EVENT_BYTES = 2 * 4 * PAGE_BYTES
"""Names of one event are charged when it is over: two entries for each."""
NUMBER = st.one_of(st.just(None), st.just(None), st.integers(0, 2**64 - 1))


@given(st.lists(st.tuples(NUMBER, MESSAGE, st.integers(0, 400)), max_size=25))
def test_a_feed_survives_anything(
    messages: list[tuple[int | None, bytes, int]],
) -> None:
    """Nothing is raised, the bound holds, and an end is an end."""
    limit = 12 * (BLOCK_BYTES + HOLDING_BYTES)
    stream = Stream(
        limit_bytes=limit, settings=FeedSettings(suspect_ttl_s=300, orphan_blocks=5)
    )
    feed = stream.feed
    for number, message, seconds in messages:
        sequence = stream.next if number is None else number
        feed.receive(sequence, message)
        stream.next = sequence + 1
        stream.clock.now += seconds
        feed.tick()
        stream.indexes.sweep(seconds + 1)
        assert stream.indexes.memory.used_bytes <= limit + LAST_EVENT_BYTES
        assert feed.orphans <= 5
        for index in stream.indexes.all:
            assert index.blocks >= 0
        if feed.owner:
            assert 0 <= feed.owner.gpu_blocks <= feed.owner.blocks
            assert 0 <= feed.owner.suspect_blocks <= feed.owner.blocks
    feed.retire()
    while stream.indexes.sweep(1000):
        pass
    assert stream.indexes.memory.used_bytes == 0
    assert all(index.blocks == 0 for index in stream.indexes.all)
