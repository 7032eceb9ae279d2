"""What one owner's events do: copies, parents, orphans, groups, media."""

import pytest

from kvindex import engine_blocks
from kvindex.blocks import Namespace, chain
from kvindex.events import media_key
from tests.kvindex.engine import (
    MODEL,
    ROOT,
    Stream,
    ids_of,
    own,
    removed,
    stored,
)


def test_copies_need_as_many_removals() -> None:
    """A block stored three times is there until the third removal."""
    stream = Stream()
    stream.send(stored(1, 2))
    stream.send(stored(2, parent=1))
    stream.send(stored(2, parent=1))
    for left in (2, 2, 1):
        assert stream.held(1, 2) == 2
        stream.send(removed(2))
        assert stream.held(1, 2) == left or left == 2
    assert stream.held(1, 2) == 1
    stream.send(removed(2))
    assert stream.feed.counters.removed == 3


def test_a_lone_block_0_stored_again_is_no_copy() -> None:
    """A hit of one block that is announced again: one removal removes it."""
    stream = Stream()
    stream.send(stored(1))
    stream.send(stored(1))
    stream.send(removed(1))
    assert stream.held(1) == 0


def test_blocks_announced_again_from_the_root_are_no_copies() -> None:
    """A report in full repeats what is reused; one removal ends it."""
    stream = Stream()
    stream.send(stored(1, 2))
    stream.send(stored(1, 2), stored(3, parent=2))
    stream.send(removed(3), removed(2))
    assert stream.held(1, 2, 3) == 1


def test_a_prompt_computed_anew_makes_copies() -> None:
    """A report in full has no new blocks: with some, all of them were computed."""
    stream = Stream()
    stream.send(stored(1, 2))
    stream.send(stored(1, 2, 3))
    stream.send(removed(1), removed(2))
    assert stream.held(1, 2, 3) == 3
    stream.send(removed(1))
    assert stream.held(1, 2, 3) == 0


def test_blocks_that_were_missed_are_not_taken_for_new_ones() -> None:
    """Where not all is known, a report in full may have blocks that seem new."""
    stream = Stream()
    stream.lose()
    stream.send(stored(1, 2))
    stream.send(stored(1, 2, 3))
    stream.send(removed(1))
    assert stream.held(1, 2, 3) == 0


def test_one_event_may_name_a_block_twice() -> None:
    """Both are held until the name is removed."""
    stream = Stream()
    stream.send(stored(1, 2, names=(7, 7)))
    assert (stream.owner.blocks, stream.held(1, 2)) == (2, 2)
    stream.send(removed(7), removed(7))
    assert stream.owner.blocks == 0


def test_a_name_that_gets_another_content() -> None:
    """The old content was not removed; with the name both are, whatever copies."""
    stream = Stream()
    stream.send(stored(1, names=(7,)), stored(1, names=(7,)))
    stream.send(stored(2, names=(7,)))
    assert (stream.held(1), stream.held(2)) == (1, 1)
    stream.send(removed(7))
    assert stream.owner.blocks == 0


def test_one_content_under_two_names() -> None:
    """It is held until both are removed."""
    stream = Stream()
    stream.send(stored(1, names=(7,)))
    stream.send(stored(1, names=(8,)))
    stream.send(stored(1, names=(b"9",)))
    stream.send(removed(7), removed(8))
    assert stream.held(1) == 1
    stream.send(removed(b"9"))
    assert stream.held(1) == 0


def test_two_full_groups_hold_a_block_together() -> None:
    """A hit needs both: the first to lose it ends it."""
    stream = Stream()
    stream.send(stored(1, group=0), stored(1, group=1))
    stream.send(removed(1, group=1))
    assert stream.held(1) == 0
    stream.send(removed(1, group=0))
    assert stream.owner.blocks == 0


@pytest.mark.parametrize("medium", [None, "GPU", "gpu"])
def test_gpu_media(medium: str | None) -> None:
    """No medium is the GPU."""
    stream = Stream()
    stream.send(stored(1, medium=medium))
    assert stream.owner.gpu_blocks == 1


def test_other_media_do_not_count_as_gpu() -> None:
    """Nor does a remote GPU; each is removed for itself."""
    stream = Stream()
    stream.send(stored(1, medium="CPU"))
    stream.send(stored(1, medium="STORAGE"))
    stream.send(stored(2, parent=1, locality="REMOTE"))
    assert (stream.owner.blocks, stream.owner.gpu_blocks) == (2, 0)
    stream.send(removed(1, medium="CPU"))
    assert stream.held(1, 2) == 2
    stream.send(removed(2))
    assert stream.held(1, 2) == 2
    stream.send(removed(2, locality="REMOTE"), removed(1, medium="STORAGE"))
    assert stream.owner.blocks == 0


def test_a_parent_may_be_in_another_medium() -> None:
    """Or in another group."""
    stream = Stream()
    stream.send(stored(1, medium="CPU"))
    stream.send(stored(2, parent=1, medium="GPU"))
    assert stream.held(1, 2) == 2


def test_media_are_bounded() -> None:
    """A stream that invents media is rejected."""
    stream = Stream()
    for number in range(engine_blocks.MAPS + 5):
        stream.send(stored(number, medium=f"tier-{number}"))
    assert stream.feed.counters.rejected == {"media": 5}
    assert not stream.feed.complete


def test_salts_and_adapters_are_namespaces() -> None:
    """The whole chain follows block 0; nobody else matches."""
    stream = Stream()
    stream.send(stored(1, names=(71,), extra_keys=(("a",),)))
    stream.send(stored(2, names=(72,), parent=71, extra_keys=(None,)))
    stream.send(
        stored(1, 2, names=(81, 82), adapter="sql", extra_keys=(("sql",), ("sql",)))
    )
    for space, blocks in (
        (Namespace(model=MODEL), 0),
        (Namespace(model=MODEL, salt="a"), 2),
        (Namespace(model=MODEL, salt="b"), 0),
        (Namespace(model=MODEL, adapter="sql"), 2),
        (Namespace(model=MODEL, adapter="sql", salt="a"), 0),
    ):
        assert stream.held(1, 2, root=space.root()) == blocks
    stream.send(removed(72), removed(71))
    assert stream.owner.blocks == 2


def test_media_keys_enter_their_block() -> None:
    """As the request's side computes them."""
    stream = Stream()
    stream.send(stored(1, 2, 3, extra_keys=(None, (["img", 3],), None)))
    hashes = chain(ids_of(1, 2, 3), 16, ROOT, {1: media_key([["img", 3]])})
    assert stream.index.match(hashes, [stream.owner])[0].blocks == 3
    assert stream.held(1, 2, 3) == 1


def test_extra_keys_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected, counted, nothing raised."""
    stream = Stream()

    def refuse(_items: object) -> bytes:
        raise RecursionError

    monkeypatch.setattr("kvindex.events.media_key", refuse)
    stream.send(stored(1, extra_keys=((["x", 1],),)))
    assert stream.feed.counters.rejected == {"extra_keys": 1}
    assert stream.owner.blocks == 0


def test_own_hashes_are_the_request_sides() -> None:
    """The index is searched with hashes of the prompt alone."""
    stream = Stream()
    stream.send(stored(1, 2))
    found = stream.index.match(own(1, 2, 3), [stream.owner])[0]
    assert (found.gpu_blocks, found.blocks) == (2, 2)


def test_two_names_for_a_block_of_a_run_partly_known() -> None:
    """Both are to be removed."""
    stream = Stream()
    stream.send(stored(1, 2, names=(71, 72)))
    stream.send(stored(1, 2, names=(71, 82)))
    stream.send(removed(72))
    assert stream.held(1, 2) == 2
    stream.send(removed(82))
    assert stream.held(1, 2) == 1
