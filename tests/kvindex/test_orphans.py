"""Orphans: kept by parent, counted, bounded."""

from kvindex.orphans import Orphans
from tests.kvindex.engine import stored

KEY = (0, "GPU", False)
CPU = (0, "CPU", False)


def test_siblings_share_a_parent() -> None:
    """One of them removed leaves the other waiting."""
    orphans = Orphans(10)
    for block in (2, 3):
        assert orphans.add(KEY, stored(block, parent=1), 1, {}) == 0
    orphans.remove(KEY, 2)
    orphans.remove(KEY, 2)
    assert [(key, name) for key, name, _ in orphans.adopt(1)] == [(KEY, 3)]
    assert list(orphans.adopt(1)) == []
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
    ((key, name, orphan),) = orphans.adopt(1)
    assert (key, name, orphan.copies, orphan.media) == (CPU, 2, 2, None)


def test_the_oldest_are_dropped() -> None:
    """And are no longer found below their parent."""
    orphans = Orphans(3)
    assert orphans.add(KEY, stored(2, 3, 4, 5, parent=1), 1, {}) == 1
    assert list(orphans.adopt(1)) == []
    assert [name for _, name, _ in orphans.adopt(2)] == [3]
    orphans.clear()
    assert len(orphans) == 0
