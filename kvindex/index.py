"""The index of each model and block size, under one memory bound.

Not here: one index (`prefix_index.py`).
"""

from kvindex.owner import Memory
from kvindex.prefix_index import PrefixIndex as PrefixIndex
from kvindex.waste import Waste


class Indexes:
    """The PrefixIndex of each (model, block size), with one memory bound over all."""

    def __init__(self, *, limit_bytes: int) -> None:
        self.memory = Memory(limit_bytes)
        self._waste = Waste()
        self._indexes: dict[tuple[str, int], PrefixIndex] = {}

    def get(self, model: str, block_size: int) -> PrefixIndex:
        """The index of a model's blocks of this size, made at the first call."""
        key, memory, waste = (model, block_size), self.memory, self._waste
        if key not in self._indexes:
            index = PrefixIndex(block_size=block_size, memory=memory, waste=waste)
            self._indexes[key] = index
        return self._indexes[key]

    @property
    def all(self) -> list[PrefixIndex]:
        """Every index there is."""
        return list(self._indexes.values())

    def sweep(self, budget: int) -> bool:
        """Sweep about `budget` blocks of one index; True while some may be left."""
        return any(index.sweep(budget) for index in self._indexes.values())
