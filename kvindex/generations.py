"""Names from before doubts: a table for each, so that none has to be copied as a whole.

No name is in two of them, so their order means nothing. Small ones are put together:
however many doubts there are, there are few tables.
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
        found = (table.get(name) for table in self.tables)
        return next((own for own in found if own is not None), None)

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

    def has_none_of(self, names: Collection[EngineHash]) -> bool:
        """Is none of these here?"""
        return all(table.has_none_of(names) for table in self.tables)
