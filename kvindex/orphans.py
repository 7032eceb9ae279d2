"""Stored blocks whose parent is unknown: kept until it arrives, within a bound.

A parent is unknown after a late join, a lost batch, or a refusal at the memory bound.
Without it a block's own hash cannot be computed, so it is not in the index.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator

import msgspec

from kvindex.content import Content
from kvindex.events import BlockStored, EngineHash

ORPHAN_BYTES = 500
"""Memory of one orphan beside its ids and its media key."""

HEADS = 256
"""Of the latest runs of orphans so many are remembered by their first block."""

HolderKey = tuple[int, str, bool]
"""(group, medium, remote): which of an owner's block maps."""


class Orphan(msgspec.Struct):
    """One block: its ids (u32 little-endian), its media key, and how many copies."""

    parent: EngineHash
    token_ids: bytes
    media: bytes | None
    copies: int = 1

    @property
    def bytes(self) -> int:
        """Its memory."""
        return ORPHAN_BYTES + len(self.token_ids) + len(self.media or b"")


class Head(msgspec.Struct, frozen=True):
    """The first block of a run of orphans: below a `parent` that no event has told of.

    `told` is what the caller counts orphans by, when it came.
    """

    key: HolderKey
    name: EngineHash
    parent: EngineHash
    told: int


class Orphans:
    """The orphans of one owner, at most `limit_blocks`; the oldest are dropped."""

    def __init__(self, limit_blocks: int) -> None:
        self._limit = limit_blocks
        self.bytes = 0
        self._blocks: OrderedDict[tuple[HolderKey, EngineHash], Orphan] = OrderedDict()
        self._children: dict[EngineHash, set[tuple[HolderKey, EngineHash]]] = {}
        self._heads: deque[Head] = deque(maxlen=HEADS)

    def __len__(self) -> int:
        return len(self._blocks)

    def add(
        self,
        key: HolderKey,
        event: BlockStored,
        parent: EngineHash,
        media: dict[int, bytes],
        told: int = 0,
    ) -> int:
        """Keep the blocks of an event below `parent`; how many that pushed out."""
        if (key, parent) not in self._blocks:
            self._heads.append(Head(key, event.hashes[0], parent, told))
        for position, engine_hash in enumerate(event.hashes):
            known = self._blocks.get((key, engine_hash))
            if known is not None:
                known.copies += 1
            else:
                orphan = Orphan(parent, event.ids_of(position), media.get(position))
                self._blocks[key, engine_hash] = orphan
                self.bytes += orphan.bytes
                self._children.setdefault(parent, set()).add((key, engine_hash))
            parent = engine_hash
        dropped = 0
        while len(self._blocks) > self._limit:
            name, orphan = self._blocks.popitem(last=False)
            self._leave(orphan, name)
            dropped += 1
        return dropped

    def remove(self, key: HolderKey, engine_hash: EngineHash) -> None:
        """A copy of this block is gone; nothing if it is no orphan."""
        orphan = self._blocks.get((key, engine_hash))
        if orphan is None:
            return
        orphan.copies -= 1
        if not orphan.copies:
            del self._blocks[key, engine_hash]
            self._leave(orphan, (key, engine_hash))

    def move(self, key: HolderKey, engine_hash: EngineHash, to: HolderKey) -> None:
        """This block is in another medium now; nothing if it is no orphan."""
        orphan = self._blocks.get((key, engine_hash))
        if orphan is None or (to, engine_hash) in self._blocks:
            return
        del self._blocks[key, engine_hash]
        self._blocks[to, engine_hash] = orphan
        siblings = self._children[orphan.parent]
        siblings.discard((key, engine_hash))
        siblings.add((to, engine_hash))

    def _leave(self, orphan: Orphan, name: tuple[HolderKey, EngineHash]) -> None:
        self.bytes -= orphan.bytes
        children = self._children[orphan.parent]
        children.discard(name)
        if not children:
            del self._children[orphan.parent]

    def adopt(
        self, parent: EngineHash
    ) -> Iterator[tuple[HolderKey, EngineHash, Orphan]]:
        """Take out the children of a block that has arrived."""
        for name in self._children.pop(parent, ()):
            orphan = self._blocks.pop(name)
            self.bytes -= orphan.bytes
            yield *name, orphan

    def heads(self, since: int) -> Iterator[tuple[Head, Orphan]]:
        """The latest heads that were told after `since` and are still there."""
        for head in self._heads:
            orphan = self._blocks.get((head.key, head.name))
            if head.told > since and orphan is not None:
                yield head, orphan

    def reach(self, content: Content) -> int:
        """Leading blocks of a prompt up to where orphans in it end; 0 where none are.

        A guess: that what they stand below is what is before them in the prompt.
        """
        position, name = 0, None
        for head, orphan in self.heads(since=-1):
            found = content.positions.get(orphan.token_ids, 0)
            if found > position and orphan.media is None:
                position, name = found, (head.key, head.name)
        while name is not None:
            position += 1
            name = self._child(name, content.block(position))
        return position

    def _child(
        self, parent: tuple[HolderKey, EngineHash], token_ids: bytes
    ) -> tuple[HolderKey, EngineHash] | None:
        for name in self._children.get(parent[1], ()):
            orphan = self._blocks[name]
            alike = orphan.token_ids == token_ids and orphan.media is None
            if alike and name[0] == parent[0]:
                return name
        return None

    def clear(self) -> None:
        """Forget all."""
        self._heads.clear()
        self._blocks.clear()
        self._children.clear()
        self.bytes = 0
