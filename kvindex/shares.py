"""Blocks to which several names lead: how many more than one.

Names of a block on a GPU are counted for each group of layers, as a hit needs it in all
groups. Those of all media behind it are counted together, whichever medium told them: a
block is held there while it is in one. There a name counts once.
"""

from typing import TypeVar

from kvindex.sharded import ShardedDict


class Shares:
    """Own hash -> names beyond the first, of blocks that have more than that."""

    def __init__(self) -> None:
        self._more: ShardedDict[int, int] = ShardedDict()

    def __len__(self) -> int:
        return self._more.entries

    def add(self, own: int) -> None:
        """One more name leads to this block."""
        self._more[own] = (self._more.get(own) or 0) + 1

    def drop(self, own: int) -> bool:
        """A name leads there no more; False if it was the only one."""
        return decrement(self._more, own)

    def forget(self, own: int) -> None:
        """Only one name leads there."""
        self._more.pop(own)

    def clear(self) -> list[dict[int, int]]:
        """Of no block it is known; what was, which takes its time to be freed."""
        more, self._more = self._more, ShardedDict()
        return more.shards


K = TypeVar("K")


def decrement(counts: ShardedDict[K, int], key: K) -> bool:
    """Count one down, without keeping zeros; False if there is none."""
    count = counts.get(key) if counts.entries else None
    if count is None:
        return False
    if count > 1:
        counts[key] = count - 1
    else:
        counts.pop(key)
    return True
