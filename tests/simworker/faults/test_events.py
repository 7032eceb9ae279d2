"""Events that an engine itself gets wrong."""

from collections.abc import Callable

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent
from simworker.faults.events import mistaken

ROOT = BlockStored(hashes=(1,), token_ids=b"", block_size=1)
CHILD = BlockStored(hashes=(2,), parent=1, token_ids=b"", block_size=1)
DIGESTS = BlockStored(
    hashes=(b"x" * 32,), parent=b"y" * 32, token_ids=b"", block_size=1
)


def playing(*names: str) -> Callable[[str], bool]:
    """Plays each of these once."""
    left = list(names)

    def play(name: str) -> bool:
        if name in left:
            left.remove(name)
            return True
        return False

    return play


def test_nothing_is_wrong_by_default() -> None:
    """Events are as they were."""
    events: list[KVEvent] = [ROOT, CHILD, AllBlocksCleared()]
    assert list(mistaken(events, playing())) == events


def test_wrong_parents() -> None:
    """Only of a block that has one, in the form of the engine's names."""
    first, second, third = mistaken([ROOT, CHILD, CHILD], playing("wrong_parents"))
    assert (first, third) == (ROOT, CHILD)
    assert isinstance(second, BlockStored)
    assert second.parent not in (None, 1)
    (bytes_,) = mistaken([DIGESTS], playing("wrong_parents"))
    assert isinstance(bytes_, BlockStored)
    assert isinstance(bytes_.parent, bytes)
    assert len(bytes_.parent) == 32
    assert bytes_.parent != DIGESTS.parent


def test_removals_of_what_never_was() -> None:
    """They come last, in the form of the engine's names."""
    *_, removal = mistaken([ROOT], playing("unknown_removals"))
    assert isinstance(removal, BlockRemoved)
    assert all(isinstance(name, int) and name != 1 for name in removal.hashes)
    *_, removal = mistaken([DIGESTS], playing("unknown_removals"))
    assert isinstance(removal, BlockRemoved)
    assert {len(name) for name in removal.hashes if isinstance(name, bytes)} == {32}
