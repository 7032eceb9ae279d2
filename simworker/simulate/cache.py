"""The block cache of a virtual worker: hashes only, no tokens, no copies.

Blocks that running requests hold stay; the rest wait in one line to be reused, the
deepest block of the request that ended longest ago first.
"""

from collections import OrderedDict
from collections.abc import Sequence


class VirtualCache:
    """At most `capacity` blocks, those of answers under way included."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held_by: dict[int, int] = {}
        """Block -> running requests that hold it; 0: it waits in line."""
        self._line: OrderedDict[int, None] = OrderedDict()
        self._anonymous = 0

    def __len__(self) -> int:
        """Blocks with content."""
        return len(self._held_by)

    def lookup(self, blocks: Sequence[int]) -> int:
        """Leading blocks that are here."""
        held = self._held_by
        return next((n for n, b in enumerate(blocks) if b not in held), len(blocks))

    def take(self, hits: Sequence[int], new: int) -> list[int] | None:
        """Hold `hits` and room for `new` more; the blocks that made room are gone.

        None where running requests leave too little room.
        """
        held, line = self._held_by, self._line
        resting = sum(1 for block in hits if not held[block])
        free = self.capacity - len(held) - self._anonymous
        missing = new - free
        if missing > len(line) - resting:
            return None
        for block in hits:
            if not held[block]:
                del line[block]
            held[block] += 1
        self._anonymous += new
        gone = [line.popitem(last=False)[0] for _ in range(missing)]
        for block in gone:
            del held[block]
        return gone

    def store(self, blocks: Sequence[int]) -> list[int]:
        """Room taken before is filled with these; the ones that are new here."""
        held, fresh = self._held_by, []
        for block in blocks:
            if block in held:  # another request computed it meanwhile
                if not held[block]:
                    del self._line[block]
                held[block] += 1
            else:
                held[block] = 1
                fresh.append(block)
        self._anonymous -= len(blocks)
        return fresh

    def release(self, blocks: Sequence[int], empty: int) -> None:
        """A request ended: its blocks, and the room it never filled, are free."""
        held, line = self._held_by, self._line
        for block in reversed(blocks):
            held[block] -= 1
            if not held[block]:
                line[block] = None
        self._anonymous -= empty

    def clear(self) -> None:
        """Everything is lost, as by a restart; what ran has ended before."""
        self._held_by.clear()
        self._line.clear()
        self._anonymous = 0
