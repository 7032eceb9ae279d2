"""What one owner's tables take of the memory bound beside its blocks.

Names come with the blocks and are paid with them; what is beyond is charged here.
"""

from kvindex.counters import Counters
from kvindex.names import Names
from kvindex.orphans import Orphans
from kvindex.shelf import Shelf


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

    def exceeded(self) -> bool:
        """Is the bound exceeded, and by names of this owner?"""
        owner, memory = self._shelf.owner, self._shelf.index.memory
        if owner.extra_bytes and memory.overdrawn:
            self.account()
        return owner.extra_bytes > 0 and memory.overdrawn

    def account(self) -> None:
        """Charge for orphans, and for names beyond those that come with the blocks.

        Beyond the bound orphans go; names only come no more.
        """
        index, owner = self._shelf.index, self._shelf.owner
        names = self._names.maps.entries - self._shelf.names_per_block * owner.blocks
        names_bytes = max(0, names) * self._shelf.name_bytes
        index.charge_extra(owner, names_bytes + self._orphans.bytes)
        if self._orphans and index.memory.overdrawn:
            self._counters.orphans_dropped += len(self._orphans)
            self._orphans.clear()
            index.charge_extra(owner, names_bytes)
