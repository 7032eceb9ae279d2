"""Blocks that an event only names: where the name is known, so is what they are.

Connectors that copy blocks to another tier may tell no tokens of them. The copy must
still be known: else the block seems gone once the GPU drops it. Not here: events that
say what their blocks are (`holder.py`).
"""

from collections.abc import Callable

from kvindex.engine_blocks import EngineBlocks, key_of
from kvindex.events import BlockStored, EngineHash
from kvindex.names import Names

Note = Callable[[EngineBlocks, EngineHash, int, bool], bool]
"""As in `adoption.py`."""


class ByName:
    """Those of one owner."""

    def __init__(self, names: Names, note: Note) -> None:
        self._names = names
        self._note = note

    def stored(self, event: BlockStored) -> bool:
        """Note blocks in the event's medium; False if it names any that are unknown.

        A tier has one copy of a block: one that is told again is no other.
        """
        key, maps = key_of(event), self._names.maps
        unknown = False
        for name in event.hashes:
            own = maps.of_name(key[0], name)
            blocks = None if own is None else maps.at(key)
            if own is None or blocks is None:
                unknown = True
            else:
                self._note(blocks, name, own, True)
        return not unknown
