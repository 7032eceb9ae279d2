"""Tables that nobody uses any more, freed in slices: a large one takes its time.

Not here: whose they were.
"""

from typing import Any


class Waste:
    """Dictionaries on their way out."""

    def __init__(self) -> None:
        self._tables: list[dict[Any, Any]] = []

    def add(self, *tables: dict[Any, Any]) -> None:
        """Nothing uses these any more."""
        self._tables += [table for table in tables if table]

    def free(self, budget: int) -> bool:
        """Free at most `budget` entries; True while some are left."""
        while self._tables:
            table = self._tables[-1]
            for _ in range(min(budget, len(table))):
                table.popitem()
                budget -= 1
            if table:
                return True
            self._tables.pop()
        return False
