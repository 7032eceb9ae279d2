"""Orphans whose place is known: they get their own hashes, and go to the index.

In slices, as thousands may wait for one block. Not here: which orphans there are
(`orphans.py`).
"""

from collections.abc import Callable

from kvindex.blocks import chain
from kvindex.engine_blocks import EngineBlocks
from kvindex.events import EngineHash
from kvindex.names import Names
from kvindex.orphans import HolderKey, Name, Orphan, Orphans
from kvindex.shelf import Shelf

Note = Callable[[EngineBlocks, EngineHash, int, bool], bool]
"""Stores a block, announced again or not; False where the bound keeps it out."""


class Adoption:
    """That of one owner's orphans; `page_size` as in its `Holder`."""

    def __init__(
        self,
        *,
        orphans: Orphans,
        names: Names,
        shelf: Shelf,
        page_size: int,
        note: Note,
    ) -> None:
        self._orphans = orphans
        self._names = names
        self._shelf = shelf
        self._page_size = page_size
        self._note = note
        self._arrived: list[tuple[EngineHash, int]] = []

    @property
    def waits(self) -> bool:
        """Whether blocks have arrived whose orphans are to be adopted still."""
        return bool(self._arrived)

    def arrived(self, engine_hash: EngineHash, own: int) -> None:
        """The name of a block is known: so is the place of the orphans below it."""
        self._arrived.append((engine_hash, own))

    def work(self, budget: int) -> int:
        """Index orphans below what has arrived; how many, about `budget`."""
        adopted = 0
        while self._arrived and adopted < budget:
            parent_name, parent = self._arrived.pop()
            root = self._shelf.salts.root_of(parent)
            for name, orphan in self._orphans.adopt(
                parent_name, budget - adopted, root
            ):
                adopted += 1
                self._adopt(name, orphan, parent, root)
            if self._orphans.has_below(parent_name, root):
                self._arrived.append((parent_name, parent))
        return adopted

    def stored(
        self,
        name: Name,
        parent_name: EngineHash | None,
        parent: int,
        root: int | None,
    ) -> None:
        """A block is stored below `parent`: if it waited for that, that is a copy.

        `root` is that of its chain, if it is told.
        """
        orphan = self._orphans.take(name, parent_name, root)
        if orphan is not None:
            self._adopt(name, orphan, parent, root)

    def _adopt(self, name: Name, orphan: Orphan, parent: int, root: int | None) -> None:
        media = {0: orphan.media} if orphan.media else {}
        own = chain(orphan.token_ids, self._page_size, parent, media)
        self._shelf.prepare(parent, own, orphan.token_ids, media)
        key, engine_hash = name
        blocks = self._names.maps[key]
        if self._note(blocks, engine_hash, own[0], False):
            blocks.add_copies(engine_hash, orphan.copies - 1)
            self._shelf.salts.note(own, root)
            self.arrived(engine_hash, own[0])

    def place(self, parent: int, block_hash: int, since: int, plain: bool) -> None:
        """A request found `parent` cached, and had `block_hash` computed below it.

        An orphan told after `since` may be that block: then what it waits for is
        `parent`, and others that wait for it find their place, too. Where the block is
        indexed already, or would have been as its parent is, the orphan is another's;
        so it may be where the block is an orphan below an orphan. One that is told to
        have no salt is only that of a request without: `plain`.
        """
        index, owner = self._shelf.index, self._shelf.owner
        if index.holds(owner, parent) or index.holds(owner, block_hash):
            return
        found: dict[EngineHash, HolderKey] = {}
        for (key, _), orphan in self._orphans.firsts(since):
            if orphan.root is not None and not plain:
                continue
            media = {0: orphan.media} if orphan.media else {}
            if chain(orphan.token_ids, self._page_size, parent, media) == [block_hash]:
                found[orphan.parent] = key
        if len(found) != 1:  # of several nobody knows which
            return
        ((above, key),) = found.items()
        blocks = self._names.maps[key]
        known = (key, above) in self._orphans or blocks.find(above) is not None
        if not known and self._note(blocks, above, parent, True):
            self.arrived(above, parent)

    def clear(self) -> None:
        """What has arrived is gone again."""
        self._arrived.clear()
