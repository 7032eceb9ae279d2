"""What one owner's tables take of the memory bound beside its blocks.

Names come with the blocks and are paid with them; what is beyond is charged here, and
what long ones take more than a number does.
"""

import sys
from collections.abc import Sequence

from kvindex.counters import Counters
from kvindex.events import EngineHash
from kvindex.names import Names
from kvindex.orphans import Orphans
from kvindex.shelf import Shelf

_NUMBER = 48
"""Bytes of one that is a number, as they are allocated."""
_SPARE = 32
"""Bytes that a name may be longer where it came with its block."""
_ALIGNMENT = 16


class Charges:
    """The account of one owner."""

    def __init__(
        self,
        shelf: Shelf,
        orphans: Orphans,
        counters: Counters,
        names: Names,
    ) -> None:
        self._shelf = shelf
        self._orphans = orphans
        self._counters = counters
        self._names = names
        self._longer = 0

    def named(self, hashes: Sequence[EngineHash]) -> None:
        """Such names come, of 64 bytes at most; one owner's are mostly alike."""
        longest = max(map(sys.getsizeof, hashes), default=0)
        allocated = -(-longest // _ALIGNMENT) * _ALIGNMENT
        self._longer = max(self._longer, allocated - _NUMBER)

    def exceeded(self, names: int) -> bool:
        """Would so many names more exceed the bound, where this owner has any beyond
        its blocks?"""
        owner, memory = self._shelf.owner, self._shelf.index.memory
        wanted = names * (self._shelf.name_bytes + self._longer)
        if owner.extra_bytes and not memory.has_room(wanted):
            self.account()
        return owner.extra_bytes > 0 and not memory.has_room(wanted)

    def account(self) -> None:
        """Charge for orphans, and for names beyond those that come with the blocks.

        Beyond the bound orphans go; names only come no more.
        """
        index, owner = self._shelf.index, self._shelf.owner
        entries = self._names.maps.entries
        names = max(0, entries - self._shelf.names_per_block * owner.blocks)
        names_bytes = names * (self._shelf.name_bytes + self._longer)
        names_bytes += (entries - names) * max(0, self._longer - _SPARE)
        index.charge_extra(owner, names_bytes + self._orphans.bytes)
        if self._orphans and index.memory.overdrawn:
            self._counters.orphans_dropped += len(self._orphans)
            self._orphans.clear()
            index.charge_extra(owner, names_bytes)
