"""Several names of one content in several media: held while one of them is left."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tests.kvindex.engine import CLEARED, Stream, own, removed, stored

GPU = "GPU"
Place = tuple[int, str]
"""A name and a medium."""
PLACES = [(name, medium) for name in (1, 2, 3) for medium in (GPU, "CPU", "DISK")]


def turned(stream: Stream, place: Place, held: set[Place]) -> None:
    """The content is stored in a place, or gone from it; `held` has where it is."""
    name, medium = place
    if place in held:
        held.remove(place)
        stream.send(removed(name, medium=medium))
    else:
        held.add(place)
        stream.send(stored(7, names=(name,), medium=medium))


def shown(stream: Stream) -> tuple[int, int]:
    """How many blocks are found, and how many of them on the GPU."""
    found = stream.index.match(own(7), [stream.owner])[0]
    return found.blocks, found.gpu_blocks


def seen(places: Iterable[Place]) -> tuple[int, int]:
    """What is to be found of a content that is held there."""
    media = {medium for _, medium in places}
    return int(bool(media)), int(GPU in media)


def test_a_name_in_another_medium_holds_it() -> None:
    """Also where it was told after another name, which is gone."""
    stream, held = Stream(block_size=16), set[Place]()
    stream.send(CLEARED)
    for place in [(1, "CPU"), (2, "DISK"), (1, "CPU"), (2, "CPU"), (2, "CPU")]:
        turned(stream, place, held)
        assert shown(stream) == (1, 0)
    turned(stream, (2, "DISK"), held)
    assert (shown(stream), stream.owner.blocks, held) == ((0, 0), 0, set())


@given(st.lists(st.sampled_from(PLACES), max_size=30))
def test_held_while_a_name_is_left(places: list[Place]) -> None:
    """Nothing is lost or over in any order."""
    stream, held = Stream(block_size=16), set[Place]()
    stream.send(CLEARED)
    for place in places:
        turned(stream, place, held)
        assert shown(stream) == seen(held)
    for place in sorted(held):
        turned(stream, place, held)
    assert (shown(stream), stream.owner.blocks) == ((0, 0), 0)
    assert stream.index.bytes == 0
