"""Where an owner's blocks go in the index: as they are, or collected from pages.

A `Shelf` is what a `Holder` writes to. `BlockShelf` is for engines whose blocks are
indexed as they are, `pages.PageShelf` for those that cut smaller ones.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from kvindex.index import Indexes, PrefixIndex
from kvindex.owner import NAME_BYTES, Owner
from kvindex.pages import PageShelf, holding_bytes, indexed_size
from kvindex.salts import Salts


class Shelf(Protocol):
    """Own hashes of an engine's blocks in, index changes out."""

    index: PrefixIndex
    owner: Owner
    salts: Salts
    """Of those that are held."""
    names_per_block: int
    """Engine hashes whose memory is charged with each block of the owner."""
    name_bytes: int
    """Memory of one more."""
    media_bytes: int
    """Memory of the media keys that are kept with what is held."""

    def prepare(
        self,
        parent: int,
        own: Sequence[int],
        token_ids: bytes,
        media: Mapping[int, bytes],
    ) -> None:
        """Say what the blocks of the next `store_run` are made of."""

    def store_run(self, own: Sequence[int], *, on_gpu: bool) -> tuple[int, list[int]]:
        """As `PrefixIndex.store_run`."""
        ...

    def remove(self, own: int, *, on_gpu: bool) -> None:
        """As `PrefixIndex.remove`."""

    def drop_suspect(self, own: int, *, on_gpu: bool) -> bool:
        """Drop what is in doubt; True where it is not held in this medium now."""
        ...

    def redoubt(self, own: int) -> None:
        """As `PrefixIndex.redoubt`."""

    def clear(self) -> None:
        """As `PrefixIndex.clear`."""

    def retire(self) -> None:
        """As `PrefixIndex.retire`."""


class BlockShelf:
    """Blocks go to the index as the engine cuts them."""

    def __init__(
        self,
        index: PrefixIndex,
        owner: Owner,
        on_gone: Callable[[int], None] | None = None,
    ) -> None:
        """`on_gone` is told of each block that is in no medium any more."""
        self.index = index
        self.owner = owner
        self.salts = Salts()
        self.names_per_block = 1
        self.name_bytes = NAME_BYTES
        self.media_bytes = 0
        self._on_gone = on_gone

    def prepare(
        self,
        parent: int,
        own: Sequence[int],
        token_ids: bytes,
        media: Mapping[int, bytes],
    ) -> None:
        """Nothing to prepare."""

    def store_run(self, own: Sequence[int], *, on_gpu: bool) -> tuple[int, list[int]]:
        """Note consecutive blocks, up to the first that is refused."""
        return self.index.store_run(self.owner, own, on_gpu=on_gpu)

    def remove(self, own: int, *, on_gpu: bool) -> None:
        """The block is gone from this medium."""
        self.index.remove(self.owner, own, on_gpu=on_gpu)
        watched = self._on_gone is not None or self.salts
        if watched and not self.index.holds(self.owner, own):
            self.salts.gone(own)
            if self._on_gone is not None:
                self._on_gone(own)

    def drop_suspect(self, own: int, *, on_gpu: bool) -> bool:
        """Drop the block if it is in doubt, of which there is one for all media."""
        dropped = self.index.drop_suspect(self.owner, own)
        if dropped:
            self.salts.gone(own)
        return dropped

    def redoubt(self, own: int) -> None:
        """The block is in doubt again."""
        self.index.redoubt(self.owner, own)

    def clear(self) -> None:
        """Nothing is held any more."""
        self.salts.clear(self.index.waste)
        self.index.clear(self.owner)

    def retire(self) -> None:
        """The owner is gone."""
        self.salts.clear(self.index.waste)
        self.index.retire(self.owner)


def shelf_for(
    indexes: Indexes,
    model: str,
    key: Hashable,
    page_size: int,
    on_gone: Callable[[int], None] | None = None,
) -> Shelf:
    """A new owner's shelf in the index of its model and block size.

    `on_gone` is not told of pages that are collected into larger blocks.
    """
    size = indexed_size(page_size)
    index = indexes.get(model, size)
    if size == page_size:
        return BlockShelf(index, index.add_owner(key), on_gone)
    owner = index.add_owner(key, holding_bytes=holding_bytes(page_size))
    return PageShelf(index, owner, page_size)
