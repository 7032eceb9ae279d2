"""What one owner's tables take of the memory bound beside its blocks.

Names come with the blocks and are paid with them; what is beyond is charged here, and
what long ones take more than a number does.
"""

import sys
from collections.abc import Mapping, Sequence

from kvindex.counters import Counters
from kvindex.engine_blocks import EngineBlocks
from kvindex.events import EngineHash
from kvindex.names import Names
from kvindex.orphans import Orphans
from kvindex.owner import BLOCK_BYTES
from kvindex.salts import SALT_BYTES
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
        self._longer = self._coming = 0
        """Bytes that names take beyond numbers at most, and media of the last event."""
        self._salt_comes = False

    def named(
        self, hashes: Sequence[EngineHash], media: Mapping[int, bytes], *, salted: bool
    ) -> bool:
        """Such names come, of 64 bytes at most; one owner's are mostly alike.

        Media are parts of pages. False, and nothing changed, where there is no room for
        these and for what all names might take more.
        """
        self._salt_comes = salted
        longest = max(map(sys.getsizeof, hashes), default=0)
        longer = -(-longest // _ALIGNMENT) * _ALIGNMENT - _NUMBER
        grown = self._names.maps.entries * max(0, longer - self._longer)
        self._coming = 0
        if media and self._shelf.names_per_block > 1:
            self._coming = sum(map(sys.getsizeof, media.values()))
        coming = grown + self._coming
        if coming and not self._shelf.index.memory.has_room(coming):
            return False
        if longer > self._longer:
            self._longer = longer
            self.account()
        return True

    def ample(self, names: int) -> bool:
        """Is there room for so many names, each with a block or another entry?"""
        return self._has_room((3 if self._salts else 2) * names)

    @property
    def _salts(self) -> bool:
        """May blocks have a salt that is listed?"""
        return self._salt_comes or bool(self._shelf.salts)

    def admits(
        self, blocks: EngineBlocks, name: EngineHash, own: int, *, announced: bool
    ) -> bool:
        """Is there room for this name? That for a new block the index looks for."""
        self.account()
        index, owner = self._shelf.index, self._shelf.owner
        if blocks.names_it(name, own):
            return announced or name in blocks.copies or self._has_room(1)
        if self._shelf.names_per_block > 1 or index.holds(owner, own):
            return self._has_room(3 if self._salts else 2)
        beyond = max(0, self._longer - _SPARE)
        beyond += SALT_BYTES if self._salts else 0
        block = BLOCK_BYTES + owner.holding_bytes
        return not beyond or index.memory.has_room(block + beyond)

    def _has_room(self, entries: int) -> bool:
        each = self._shelf.name_bytes + self._longer
        return self._shelf.index.memory.has_room(entries * each + self._coming)

    def account(self) -> None:
        """Charge for orphans, and for names beyond those that come with the blocks.

        Beyond the bound orphans go; names only come no more.
        """
        index, owner = self._shelf.index, self._shelf.owner
        entries = self._names.maps.entries
        if not entries:
            self._longer = 0
        names = max(0, entries - self._shelf.names_per_block * owner.blocks)
        names_bytes = names * (self._shelf.name_bytes + self._longer)
        names_bytes += self._shelf.media_bytes + len(self._shelf.salts) * SALT_BYTES
        names_bytes += (entries - names) * max(0, self._longer - _SPARE)
        index.charge_extra(owner, names_bytes + self._orphans.bytes)
        if self._orphans and index.memory.overdrawn:
            self._counters.orphans_dropped += len(self._orphans)
            index.waste.add(*self._orphans.clear())
            index.charge_extra(owner, names_bytes)
