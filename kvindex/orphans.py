"""Stored blocks whose parent is unknown: kept until it arrives, within a bound.

A parent is unknown after a late join, a lost batch, or a refusal at the memory bound.
Without it a block's own hash cannot be computed, so it is not in the index. What a
prompt has in common with orphans may be guessed by its ids: see `guess`.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import Any

import msgspec

from kvindex.content import Content
from kvindex.events import BlockStored, EngineHash

ORPHAN_BYTES = 600
"""Memory of one orphan beside its ids and its media key."""

FOREIGN = "namespace"
"""Why chains are left out whose adapter or salt no event tells."""

FIRSTS = 64
"""Of the latest events of orphans so many are remembered by their first block."""

ALIKE = 16
"""Orphans with the same ids that are compared with one block of a prompt."""
COMPARED = 64
"""Those that are compared with a prompt in all: where its blocks are all alike, and an
orphan's run differs at its beginning only, there would be thousands."""
STEPS = 64
"""Orphans before each that are compared."""

HolderKey = tuple[int, str, bool]
"""(group, medium, remote): which of an owner's block maps."""
Name = tuple[HolderKey, EngineHash]
Parent = EngineHash | tuple[EngineHash, int]
"""What an orphan waits for: a name, and the root of its chain where that is told."""


class Orphan(msgspec.Struct):
    """One block: its ids (u32 little-endian), its media key, and how many copies.

    `doubtful`: its parent is gone, or what was guessed of it was not so. `root` is that
    of its chain, where the event told it: `UNSALTED` counts as false.
    """

    parent: EngineHash
    token_ids: bytes
    media: bytes | None
    adapter: str | None = None
    root: int | None = None
    copies: int = 1
    doubtful: bool = False

    @property
    def bytes(self) -> int:
        """Its memory."""
        return ORPHAN_BYTES + len(self.token_ids) + len(self.media or b"")


class Guess(msgspec.Struct, frozen=True):
    """That `blocks` leading blocks of a prompt are held: those from `start` on by ids.

    `head` is the orphan at `start`; of what is before it no event has told.
    """

    head: Name
    start: int
    blocks: int


class Orphans:
    """The orphans of one owner, at most `limit_blocks`; the oldest are dropped.

    `rejected` are the reasons for which events were left out so far. Where chains were
    for their namespace orphans may be what follows on these, so nothing is guessed.
    """

    def __init__(self, limit_blocks: int, rejected: Collection[str] = ()) -> None:
        self._limit = limit_blocks
        self._rejected = rejected
        self.bytes = 0
        self._blocks: OrderedDict[Name, Orphan] = OrderedDict()
        self._children: dict[Parent, set[Name]] = {}
        self._by_ids: dict[bytes, dict[Name, None]] = {}
        self._firsts: deque[tuple[Name, int]] = deque(maxlen=FIRSTS)

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, name: Name) -> bool:
        return name in self._blocks

    def add(
        self,
        key: HolderKey,
        event: BlockStored,
        parent: EngineHash,
        media: dict[int, bytes],
        told: int = 0,
        adapter: str | None = None,
        root: int | None = None,
    ) -> int:
        """Keep the blocks of an event below `parent`; how many that pushed out.

        `told` is what the caller counts orphans by: `firsts` asks for it. Of several
        chains' blocks with one name the first is kept: a removal tells none of them.
        """
        self._firsts.append(((key, event.hashes[0]), told))
        for position, engine_hash in enumerate(event.hashes):
            known = self._blocks.get((key, engine_hash))
            if known is not None:
                known.copies += known.root == root
            else:
                ids, medium = event.ids_of(position), media.get(position)
                orphan = Orphan(parent, ids, medium, adapter, root)
                self.bytes += orphan.bytes
                self._enter((key, engine_hash), orphan)
            parent = engine_hash
        dropped = 0
        while len(self._blocks) > self._limit:
            self._leave(next(iter(self._blocks)))
            dropped += 1
        return dropped

    def remove(
        self, key: HolderKey, engine_hash: EngineHash, *, whole: bool = False
    ) -> None:
        """A copy of this block is gone, or all of them; it need not be an orphan."""
        orphan = self._blocks.get((key, engine_hash))
        if orphan is not None:
            orphan.copies -= 1
            if orphan.copies and not whole:
                return
            self._leave((key, engine_hash))
        for name in self._children.get(engine_hash, ()):
            self._blocks[name].doubtful = True  # what is before it is not held any more

    def move(self, key: HolderKey, engine_hash: EngineHash, to: HolderKey) -> None:
        """This block is in another medium now; nothing if it is no orphan."""
        orphan = self._blocks.get((key, engine_hash))
        if orphan is not None and (to, engine_hash) not in self._blocks:
            self._leave((key, engine_hash))
            self.bytes += orphan.bytes
            self._enter((to, engine_hash), orphan)

    def _enter(self, name: Name, orphan: Orphan) -> None:
        self._blocks[name] = orphan
        self._children.setdefault(_parent(orphan), set()).add(name)
        if orphan.media is None and not orphan.root:
            self._by_ids.setdefault(orphan.token_ids, {})[name] = None

    def _leave(self, name: Name) -> Orphan:
        orphan = self._blocks.pop(name)
        self.bytes -= orphan.bytes
        children = self._children[_parent(orphan)]
        children.discard(name)
        if not children:
            del self._children[_parent(orphan)]
        if orphan.media is None and not orphan.root:
            alike = self._by_ids[orphan.token_ids]
            del alike[name]
            if not alike:
                del self._by_ids[orphan.token_ids]
        return orphan

    def adopt(
        self, parent: EngineHash, limit: int, root: int | None = None
    ) -> Iterator[tuple[Name, Orphan]]:
        """Take out children of a block that has arrived, so many at most.

        Those of the chain with its root, and those that told none.

        All may be forgotten while it is gone through: storing one can meet the bound.
        """
        waiting = (self._children.get(key, ()) for key in _keys(parent, root))
        for name in tuple(islice(chain.from_iterable(waiting), limit)):
            if name in self._blocks:
                yield name, self._leave(name)

    def take(
        self, name: Name, parent: EngineHash | None, root: int | None = None
    ) -> Orphan | None:
        """Take out one orphan, if it is one and waits for this parent."""
        orphan = self._blocks.get(name)
        if orphan is None or orphan.parent != parent or orphan.root not in (None, root):
            return None
        return self._leave(name)

    def has_below(self, parent: EngineHash, root: int | None = None) -> bool:
        """Whether any wait for this parent, as `adopt` has it."""
        return any(key in self._children for key in _keys(parent, root))

    def firsts(self, since: int) -> Iterator[tuple[Name, Orphan]]:
        """First blocks of the latest events after `since` that are orphans still.

        Not those of a salt: whose request it was that found them nobody knows.
        """
        for name, told in () if FOREIGN in self._rejected else self._firsts:
            orphan = self._blocks.get(name)
            if told > since and orphan is not None and not orphan.root:
                yield name, orphan

    def guess(self, content: Content) -> Guess | None:
        """What a prompt may have in common with orphans: the run that ends last in it.

        That what is before the run is held as well is the guess: the prompt has it
        before these ids, but others may have something else.
        """
        if FOREIGN in self._rejected:
            return None
        alike = (
            (name, position)
            for position, token_ids in content.backwards
            for name in islice(self._by_ids.get(token_ids, ()), ALIKE)
        )
        for name, position in islice(alike, COMPARED):
            head, start = self._head(name, content, position)
            if start:
                return Guess(head, start, position + 1)
        return None

    def _head(self, name: Name, content: Content, position: int) -> tuple[Name, int]:
        """The first orphan of a run, and where it is in the prompt; 0 if it is not.

        Nothing is before block 0, so no orphan is there.
        """
        head, least = name, max(0, position - STEPS)
        while (orphan := self._blocks.get(name)) is not None and position >= least:
            unlike = orphan.media is not None or orphan.adapter != content.adapter
            unlike = unlike or bool(orphan.root)
            if orphan.doubtful or unlike or orphan.token_ids != content.block(position):
                return head, 0
            head, name, position = name, (name[0], orphan.parent), position - 1
        return head, position + 1

    def doubt(self, guess: Guess) -> None:
        """The worker did not find what was guessed: no more is guessed of that run."""
        orphan = self._blocks.get(guess.head)
        if orphan is not None:
            orphan.doubtful = True

    def clear(self) -> tuple[dict[Any, Any], ...]:
        """Forget all; what was kept, which takes its time to be freed."""
        tables = self._blocks, self._children, self._by_ids
        self._blocks, self._children, self._by_ids = OrderedDict(), {}, {}
        self._firsts.clear()
        self.bytes = 0
        return tables


def _parent(orphan: Orphan) -> Parent:
    return orphan.parent if orphan.root is None else (orphan.parent, orphan.root)


def _keys(parent: EngineHash, root: int | None) -> tuple[Parent, ...]:
    return (parent,) if root is None else ((parent, root), parent)
