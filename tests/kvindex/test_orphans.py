"""Orphans: kept by parent, counted, bounded."""

from kvindex.content import LIMIT, Content
from kvindex.orphans import COMPARED, STEPS, Orphans
from tests.kvindex.engine import ids_of, stored

KEY = (0, "GPU", False)
CPU = (0, "CPU", False)


def test_siblings_share_a_parent() -> None:
    """One of them removed leaves the other waiting."""
    orphans = Orphans(10)
    for block in (2, 3):
        assert orphans.add(KEY, stored(block, parent=1), 1, {}) == 0
    orphans.remove(KEY, 2)
    orphans.remove(KEY, 2)
    assert [name for name, _ in orphans.adopt(1, 9)] == [(KEY, 3)]
    assert list(orphans.adopt(1, 9)) == []
    assert len(orphans) == 0


def test_media_are_kept_apart() -> None:
    """The same block in two media are two orphans."""
    orphans = Orphans(10)
    orphans.add(KEY, stored(2, parent=1), 1, {0: b"m"})
    orphans.add(CPU, stored(2, parent=1), 1, {})
    orphans.add(CPU, stored(2, parent=1), 1, {})
    orphans.remove(KEY, 2)
    orphans.add(CPU, stored(2, parent=1), 1, {})
    orphans.remove(CPU, 2)
    (((key, name), orphan),) = orphans.adopt(1, 9)
    assert (key, name, orphan.copies, orphan.media) == (CPU, 2, 2, None)


def test_the_oldest_are_dropped() -> None:
    """And are no longer found below their parent."""
    orphans = Orphans(3)
    assert orphans.add(KEY, stored(2, 3, 4, 5, parent=1), 1, {}) == 1
    assert list(orphans.adopt(1, 9)) == []
    assert [name for (_, name), _ in orphans.adopt(2, 9)] == [3]
    orphans.clear()
    assert len(orphans) == 0


def test_copies_of_engines_that_keep_one() -> None:
    """Such an engine's removal takes all of them; another's takes one."""
    orphans = Orphans(10)
    for _ in range(3):
        orphans.add(KEY, stored(2, parent=1), 1, {})
    orphans.remove(KEY, 2)
    assert len(orphans) == 1
    orphans.remove(KEY, 2, whole=True)
    assert len(orphans) == 0


def test_what_moves_is_found_where_it_is() -> None:
    """By its ids, in its other medium."""
    orphans = Orphans(10)
    orphans.add(KEY, stored(2, 3, parent=1), 1, {})
    orphans.move(KEY, 3, CPU)
    content = Content(ids_of(7, 1, 2, 3, 4), 16, 5)
    guess = orphans.guess(content)
    assert guess is not None
    assert (guess.blocks, guess.head) == (4, (CPU, 3))
    orphans.remove(CPU, 3)
    guess = orphans.guess(content)
    assert guess is not None
    assert (guess.start, guess.blocks) == (2, 3)


def test_a_prompt_of_blocks_that_are_all_alike() -> None:
    """Each of them is like each of a run: so much is not compared."""
    orphans = Orphans(1_000)
    orphans.add(
        KEY, stored(*[5, *[7] * 200], names=(*range(201),), parent=999), 999, {}
    )
    looked = 0

    class Counting(Content):
        def block(self, position: int) -> bytes:
            nonlocal looked
            looked += 1
            return super().block(position)

    assert orphans.guess(Counting(ids_of(*[7] * LIMIT), 16, LIMIT)) is None
    assert looked - LIMIT <= COMPARED * STEPS


def test_what_may_follow_on_another_namespace_is_nothing() -> None:
    """Once such a chain was left out nothing is guessed of orphans, nor placed."""
    rejected: dict[str, int] = {"window": 1}
    orphans = Orphans(10, rejected)
    orphans.add(KEY, stored(2, 3, parent=1), 1, {}, told=2)
    content = Content(ids_of(1, 2, 3), 16, 3)
    assert orphans.guess(content) is not None
    assert [name for (_, name), _ in orphans.firsts(0)] == [2]
    rejected["namespace"] = 1
    assert orphans.guess(content) is None
    assert list(orphans.firsts(0)) == []
    assert [name for (_, name), _ in orphans.adopt(1, 9)] == [2]
