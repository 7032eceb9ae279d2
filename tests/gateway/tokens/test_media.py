"""Media of a prompt of ids: the extra keys that vLLM's events have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tokens.media import Features, Medium, Place, extra_keys, media_of
from kvindex.events import BlockStored, take_apart
from simworker.hashing import Identity
from simworker.hashing import Medium as Told

MEDIA = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=4), st.integers(0, 90)), max_size=5
)


@given(MEDIA, st.integers(1, 40), st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_keys_are_those_that_events_tell(
    items: list[tuple[str, int]], length: int, size: int
) -> None:
    """Whatever there is, wherever it is: as an event has it, taken apart."""
    items = sorted(items, key=lambda item: item[1])
    blocks = 200 // size
    told = Identity(media=tuple(Told(name, at, length) for name, at in items))
    event = BlockStored(
        hashes=tuple(range(blocks)),
        parent=None,
        token_ids=b"",
        block_size=size,
        extra_keys=tuple(told.event_keys(block, size) for block in range(blocks)),
    )
    ours = [Medium(name, Place(at, length)) for name, at in items]
    found = extra_keys(ours, size, 200) or {}
    keys = {block: key for block, key in found.items() if block < blocks}
    assert keys == take_apart(event, "m").media


def test_what_is_beyond_the_prompt_has_no_block() -> None:
    """However far a body says that an item reaches."""
    endless = [Medium("a", Place(8, 1 << 50))]
    assert extra_keys(endless, 16, 40) is not None
    assert {*(extra_keys(endless, 16, 40) or {})} == {0, 1, 2}
    assert extra_keys([], 16, 40) is None


def test_hashes_and_places_must_match() -> None:
    """One for each."""
    places = {"image": [Place(0, 1)]}
    features = Features(mm_hashes={"image": ["a"]}, mm_placeholders=places)
    assert media_of(features) == [Medium("a", Place(0, 1))]
    assert media_of(None) == []
    for hashes in ({"image": ["a", "b"]}, {"audio": ["a"]}):
        with pytest.raises(ValueError, match="zip"):
            media_of(Features(mm_hashes=hashes, mm_placeholders=places))
