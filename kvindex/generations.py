"""Names from before doubts: a table for each, so that none has to be copied at once.

No name is in two of them, so their order means nothing. They are put together again in
slices: each look-up goes through all there are.
"""

from collections.abc import Collection

from kvindex.events import EngineHash
from kvindex.sharded import ShardedDict

SMALL = 8_192
"""Names that are copied at once at most: about two milliseconds."""


class Generations:
    """Engine hash -> own hash."""

    def __init__(self) -> None:
        self.tables: list[ShardedDict[EngineHash, int]] = []

    def __len__(self) -> int:
        return sum([table.entries for table in self.tables])

    def __bool__(self) -> bool:
        return bool(self.tables)

    def __contains__(self, name: EngineHash) -> bool:
        return any(name in table for table in self.tables)

    def get(self, name: EngineHash) -> int | None:
        """The own hash of a name, if it is here."""
        for table in self.tables:
            if (own := table.get(name)) is not None:
                return own
        return None

    def pop(self, name: EngineHash) -> int | None:
        """The same, and it is here no more."""
        for table in self.tables:
            if (own := table.pop(name)) is not None:
                self._tidy(table)
                return own
        return None

    def take(self) -> tuple[EngineHash, int]:
        """Any name with its own hash, here no more; there must be one."""
        table = self.tables[-1]
        taken = table.popitem()
        self._tidy(table)
        return taken

    def _tidy(self, table: ShardedDict[EngineHash, int]) -> None:
        if not table:
            self.tables = [each for each in self.tables if each]

    def add(self, table: ShardedDict[EngineHash, int]) -> None:
        """One more generation; the table is kept, or what it has is copied."""
        if not table:
            return
        if self.tables and len(self.tables[-1]) + len(table) <= SMALL:
            for shard in table.shards:
                self.tables[-1].extend(shard.keys(), shard.values())
        else:
            self.tables.append(table)

    def gather(self, budget: int) -> bool:
        """Move `budget` names at most to the largest table; True while it is not all.

        Several tables are left where doubts follow on each other faster than that.
        """
        self.tables.sort(key=len, reverse=True)
        while len(self.tables) > 1 and budget > 0:
            budget -= 1
            name, own = self.take()
            self.tables[0][name] = own
        return len(self.tables) > 1

    def has_none_of(self, names: Collection[EngineHash]) -> bool:
        """Is none of these here?"""
        return all(table.has_none_of(names) for table in self.tables)
