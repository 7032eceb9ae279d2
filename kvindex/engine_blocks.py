"""The map from an engine's block hashes to own hashes, and which events enter it.

Not here: what an event does (`holder.py`).
"""

from collections.abc import Sequence
from typing import Any

from kvindex.blocks import ID_BYTES
from kvindex.events import BlockRemoved, BlockStored, EngineHash
from kvindex.generations import Generations
from kvindex.orphans import HolderKey
from kvindex.sharded import ShardedDict
from kvindex.shares import Shares, decrement

FULL_ATTENTION = ("full_attention", "mla_attention", "sink_full_attention")
MAPS = 32
"""At most so many (group, medium) maps of one owner."""
NAMESAKES = 512
"""At most so many blocks of one map have lent their name to a later one."""


class EngineBlocks:
    """Engine hash -> own hash of one (group, medium).

    Engines that leave out of their hash what keeps blocks apart, such as a salt, give
    several one name: `own` has the last of them, `namesakes` those before.
    """

    def __init__(self, *, on_gpu: bool, shares: Shares) -> None:
        self.on_gpu = on_gpu
        self.shares = shares
        self.own: ShardedDict[EngineHash, int] = ShardedDict()
        self.previous = Generations()
        self.copies: ShardedDict[EngineHash, int] = ShardedDict()
        self.namesakes: dict[EngineHash, list[int]] = {}
        self._before = 0  # how many these are: asked for with each event

    def __len__(self) -> int:
        """Entries of all its tables, without `shares`."""
        names = self.own.entries + len(self.previous) + self._before
        return names + self.copies.entries

    def find(self, engine_hash: EngineHash) -> int | None:
        """The own hash of a block that is held here."""
        shards = self.own.shards  # looked at for each block of an event
        own = shards[hash(engine_hash) % len(shards)].get(engine_hash)
        return self.previous.get(engine_hash) if own is None else own

    def names_it(self, engine_hash: EngineHash, own: int) -> bool:
        """Is this block held here, by this name?"""
        held = self.find(engine_hash) == own
        return held or own in self.namesakes.get(engine_hash, ())

    def lenders(self, engine_hash: EngineHash) -> Sequence[int]:
        """Own hashes of those that lent this name to a later one."""
        return self.namesakes.get(engine_hash, ())

    def may_lend(self, engine_hash: EngineHash) -> bool:
        """May another block have this name, too? Not of one in doubt."""
        return engine_hash in self.own and self._before < NAMESAKES

    def lend(self, engine_hash: EngineHash) -> None:
        """Another block is to have this name, too."""
        before = self.namesakes.setdefault(engine_hash, [])
        if (own := self.own.pop(engine_hash)) is not None:
            before.append(own)
            self._before += 1

    def add_copies(self, engine_hash: EngineHash, copies: int) -> None:
        """The engine holds so many more of this block."""
        if copies:
            self.copies[engine_hash] = (self.copies.get(engine_hash) or 0) + copies

    def drop_copy(self, engine_hash: EngineHash) -> bool:
        """One of several copies is gone; False if there is but one."""
        return decrement(self.copies, engine_hash)

    def tells(self, engine_hash: EngineHash, own: int) -> bool:
        """Is this block held here, by this name, since the last doubt?"""
        told = self.own.get(engine_hash) == own
        return told or own in self.namesakes.get(engine_hash, ())

    def drop_name(self, engine_hash: EngineHash) -> list[int]:
        """Forget a name; the own hashes to which it led."""
        own = self.own.pop(engine_hash)
        if own is None:
            own = self.previous.pop(engine_hash)
        before = self.namesakes.pop(engine_hash, [])
        self._before -= len(before)
        return before if own is None else [*before, own]

    @property
    def tables(self) -> tuple[dict[Any, Any], ...]:
        """All there is, without `shares`."""
        tables: list[dict[Any, Any]] = [self.namesakes]
        for names in (self.own, *self.previous.tables, self.copies):
            tables += names.shards
        return tuple(tables)

    def doubt(self) -> list[dict[EngineHash, int]]:
        """All entries become previous ones; their copies are no longer known.

        What was known of these, which takes its time to be freed.
        """
        self.previous.add(self.own)
        left = self.copies.shards
        self.own, self.copies = ShardedDict(), ShardedDict()
        return left

    def knows_none(self, hashes: Sequence[EngineHash]) -> bool:
        """Are all these different, and none held here?"""
        names = set(hashes)
        return (
            len(names) == len(hashes)
            and self.own.has_none_of(names)
            and self.previous.has_none_of(names)
        )


class Maps(dict[HolderKey, EngineBlocks]):
    """The maps of one owner, by (group, medium)."""

    def __init__(self) -> None:
        super().__init__()
        self._behind = Shares()

    @property
    def entries(self) -> int:
        """Entries of all of them."""
        return sum(map(len, self.values())) + sum(map(len, self.shares))

    @property
    def shares(self) -> list[Shares]:
        """Those of each map on a GPU, and those of all others."""
        return [self._behind, *(each.shares for each in self.values() if each.on_gpu)]

    def at(self, key: HolderKey) -> EngineBlocks | None:
        """The map of a (group, medium), made if need be; None if it is one too many."""
        if key not in self:
            if len(self) >= MAPS:
                return None
            shares = Shares() if on_gpu(key) else self._behind
            self[key] = EngineBlocks(on_gpu=on_gpu(key), shares=shares)
        return self[key]

    def of_group(self, group: int | None) -> list[HolderKey]:
        """The media of one group."""
        return [key for key in self if key[0] == (group or 0)]

    def find(self, first: EngineBlocks, name: EngineHash) -> int | None:
        """The own hash of a block held in any of them; `first` is looked at first."""
        found = (blocks.find(name) for blocks in (first, *self.values()))
        return next((own for own in found if own is not None), None)

    def of_name(self, group: int | None, name: EngineHash) -> int | None:
        """The own hash of a block of one group, held in whichever medium.

        Groups name blocks alike: another one's says nothing of this one. None, too,
        where it is the name of several.
        """
        if self.lent(name):
            return None
        found = (self[key].find(name) for key in self.of_group(group))
        return next((own for own in found if own is not None), None)

    def named(self, name: EngineHash) -> set[int]:
        """The own hashes of all blocks that are held by this name, wherever."""
        named = {own for blocks in self.values() for own in blocks.lenders(name)}
        found = (blocks.find(name) for blocks in self.values())
        return named.union(own for own in found if own is not None)

    def lent(self, name: EngineHash) -> bool:
        """Is this the name of several blocks, in one medium or in several?"""
        if any(name in blocks.namesakes for blocks in self.values()):
            return True
        found = {blocks.find(name) for blocks in self.values()}
        return len(found - {None}) > 1

    @property
    def in_doubt(self) -> bool:
        """Are there names that were not told since the last doubt?"""
        return any(blocks.previous for blocks in self.values())

    def names(self, name: EngineHash, own: int) -> bool:
        """Does any of them hold this block by this name?"""
        return any(blocks.names_it(name, own) for blocks in self.values())

    def names_on_gpu(self, name: EngineHash, own: int) -> bool:
        """The same, of those of a GPU."""
        return any(b.on_gpu and b.names_it(name, own) for b in self.values())

    def tells(self, name: EngineHash, own: int) -> bool:
        """Has any of them told of this block by this name since the last doubt?"""
        return any(blocks.tells(name, own) for blocks in self.values())

    def elsewhere(self, blocks: EngineBlocks, name: EngineHash, own: int) -> bool:
        """Does another map of the same medium class hold this block by this name?"""
        return any(
            other.names_it(name, own)
            for other in self.values()
            if other is not blocks and other.on_gpu == blocks.on_gpu
        )


NO_TOKENS = "no_tokens"
"""Why an event is refused that only names blocks."""


def refusal(event: BlockStored) -> str | None:
    """Why an event cannot be indexed, or None."""
    if event.group_kind is not None and event.group_kind not in FULL_ATTENTION:
        return "group_kind"
    if event.foreign:
        return "namespace"
    if event.block_size < 1 or not event.token_ids:
        return NO_TOKENS
    if len(event.token_ids) != len(event.hashes) * event.block_size * ID_BYTES:
        return "length"
    return None


def key_of(event: BlockStored | BlockRemoved) -> HolderKey:
    """Which map an event is about. No group is group 0, no medium is GPU."""
    return event.group or 0, event.medium or "GPU", event.locality == "REMOTE"


def on_gpu(key: HolderKey) -> bool:
    """Is what such a map holds on the worker's own GPU?"""
    _, medium, remote = key
    return medium.upper() == "GPU" and not remote


def keys_of(event: BlockRemoved, maps: Maps) -> list[HolderKey]:
    """Which maps a removal is about."""
    if event.any_medium:
        return maps.of_group(event.group)
    return [key_of(event)]


def announces_again(
    blocks: EngineBlocks, event: BlockStored, *, all_known: bool
) -> bool:
    """Does the event announce again what is held, without new copies?

    Where not all is known, blocks that seem new may just have been missed.
    """
    if not event.from_root and event.parent is not None:
        return False
    return not all_known or all(blocks.find(name) is not None for name in event.hashes)
