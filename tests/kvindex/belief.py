"""What can be known from the events of a worker that arrived, on plain data."""

from collections import Counter
from functools import cache
from typing import NamedTuple

from kvindex.blocks import chain, pack_ids
from kvindex.events import BlockRemoved, BlockStored, KVEvent
from tests.kvindex.engine import CLEARED, ROOT

SIZE = 16
Path = tuple[int, ...]


class Copy(NamedTuple):
    """A block's place: medium, and the labels from the root to it."""

    medium: str
    path: Path


class Store(NamedTuple):
    """The last `blocks` blocks of a path are stored."""

    medium: str
    path: Path
    blocks: int

    @property
    def paths(self) -> list[Path]:
        ends = range(len(self.path) - self.blocks, len(self.path))
        return [self.path[: end + 1] for end in ends]


class Evict(NamedTuple):
    """One copy is removed."""

    copy: Copy


Move = Store | Evict | None  # None clears


def ids(path: Path) -> bytes:
    """The token ids along a path."""
    return pack_ids(i for label in path for i in range(label * 100, label * 100 + SIZE))


@cache
def own_hash(path: Path) -> int:
    """The own hash of the block at the end of a path."""
    return chain(ids(path), SIZE, ROOT)[-1]


def name(path: Path) -> int:
    """The engine's hash of it."""
    return own_hash(path) ^ 0x5555


def event_of(move: Move) -> KVEvent:
    """A move as the worker announces it."""
    if move is None:
        return CLEARED
    if isinstance(move, Evict):
        return BlockRemoved(hashes=(name(move.copy.path),), medium=move.copy.medium)
    before = move.path[: len(move.path) - move.blocks]
    return BlockStored(
        hashes=tuple(name(path) for path in move.paths),
        parent=name(before) if before else None,
        token_ids=ids(move.path[len(before) :]),
        block_size=SIZE,
        medium=move.medium,
    )


class Belief:
    """What can be known from the events that arrived.

    `named` are blocks known by name, with their copies; `silenced` those of them that
    delivered tokens contradicted; `old` those named before a miss. `fresh` are the
    paths out of doubt, None where nothing is in doubt. `apart`: a batch was missed, and
    what was told since is known.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The worker's cache is empty."""
        self.named: Counter[Copy] = Counter()
        self.silenced: set[Copy] = set()
        self.old: set[Copy] = set()
        self.orphans: Counter[Copy] = Counter()
        self.fresh: set[Path] | None = None
        self.apart = False

    @property
    def held(self) -> set[Copy]:
        """What the index claims."""
        return set(self.named) - self.silenced

    @property
    def suspects(self) -> set[Path]:
        """What it claims in doubt."""
        fresh = self.fresh
        if fresh is None:
            return set()
        return {copy.path for copy in self.held if copy.path not in fresh}

    def miss(self) -> None:
        """A batch was lost: copies and orphans are not known any more."""
        self.named = Counter(dict.fromkeys(self.named, 1))
        self.old = set(self.named)
        self.apart = True
        self.orphans.clear()

    def learn(self, move: Move) -> None:
        """One event."""
        if move is None:
            self.forget()
        elif isinstance(move, Evict):
            counter = self.named if move.copy in self.named else self.orphans
            counter[move.copy] -= 1
            if counter[move.copy] <= 0:
                del counter[move.copy]
                if counter is self.named:
                    self.unname(move.copy)
        else:
            before = move.paths[0][:-1]
            rooted = not before or before in {copy.path for copy in self.named}
            in_full = not before
            for copy in (Copy(move.medium, path) for path in move.paths):
                if rooted:
                    self.believe(copy, counts=not in_full)
                else:
                    self.orphans[copy] += 1

    def unname(self, copy: Copy) -> None:
        """A name is gone, and with the last claim its freshness."""
        del self.named[copy]
        self.silenced.discard(copy)
        self.old.discard(copy)
        if self.fresh is not None:
            self.fresh &= {held.path for held in self.held}
            left = {other for other in self.named if other.path == copy.path}
            if left <= self.old:  # what took it out of doubt was this medium
                self.fresh.discard(copy.path)

    def believe(self, copy: Copy, *, counts: bool) -> None:
        """A block is stored whose parent is known."""
        if copy not in self.named or copy in self.old:
            self.named[copy] = 1
        elif counts:
            self.named[copy] += 1
        self.old.discard(copy)
        self.silenced.discard(copy)
        if self.fresh is not None:
            self.fresh.add(copy.path)
        for orphan in [o for o in self.orphans if o.path[:-1] == copy.path]:
            count = self.orphans.pop(orphan)
            self.believe(orphan, counts=True)
            self.named[orphan] += count - 1

    def walk(self) -> None:
        """Names from before a miss are looked at: those still held stay."""
        kept = {copy.path for copy in self.held} - self.suspects
        for copy in [c for c in self.old if c.path not in kept]:
            self.unname(copy)
        for copy in [c for c in self.old if self.proven_elsewhere(c)]:
            del self.named[copy]
        self.old.clear()

    def proven_elsewhere(self, copy: Copy) -> bool:
        """Is it out of doubt just for being held in the other medium?

        What the worker found is on GPU.
        """
        others = {c for c in self.named if c.path == copy.path and c != copy}
        return copy.medium != "GPU" or not others <= self.old
