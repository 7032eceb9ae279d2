"""Of which salt's chain each block is, where the events themselves say so.

Engines that leave the salt out of their hash give blocks of several chains one name.
Some tell the salt with every event: then a parent's name and the salt, or that there is
none, say which block is meant. A chain is known by its root; blocks of chains without
salt are not listed.
"""

from collections.abc import Collection
from itertools import repeat

from kvindex.engine_blocks import EngineBlocks, Maps
from kvindex.events import BlockStored, EngineHash
from kvindex.sharded import ShardedDict
from kvindex.waste import Waste

SALT_BYTES = 100
"""Memory of one block's entry in a table that has just grown; its hash is another's."""


UNSALTED = 0
"""Stands for the root of each chain of which it is told that it has no salt."""


class Salts:
    """Own hash -> root of its chain, for blocks that one owner holds."""

    def __init__(self) -> None:
        self._root_of: ShardedDict[int, int] = ShardedDict()
        self._others: int | None = None

    def __len__(self) -> int:
        return self._root_of.entries

    def told(self, event: BlockStored, root: int) -> int | None:
        """The root of the chain that an event says to be of, where it says so.

        `root` is that of its namespace.
        """
        if event.salt_in_each:
            self._others = UNSALTED
        return self._others if event.salt is None else root

    def note(self, own: Collection[int], root: int | None) -> None:
        """These blocks are held, and of the chain with this root."""
        if root:
            self._root_of.update(own, repeat(root))

    def root_of(self, own: int) -> int | None:
        """The root of the chain that a block is of, if it is told."""
        root = self._root_of.get(own)
        return self._others if root is None else root

    def gone(self, own: int) -> None:
        """This block is not held any more."""
        self._root_of.pop(own)

    def clear(self, waste: Waste) -> None:
        """Nothing is held any more."""
        waste.add(*self._root_of.shards)
        self._root_of = ShardedDict()

    def parents(
        self, maps: Maps, first: EngineBlocks, name: EngineHash, root: int | None
    ) -> set[int]:
        """Which blocks may be meant by a parent's name, in a chain with this root.

        Where no root is told it may be each of those that share the name.
        """
        if root is not None:
            return {own for own in maps.named(name) if self.root_of(own) == root}
        if maps.lent(name):
            return maps.named(name)
        found = maps.find(first, name)
        return set() if found is None else {found}
