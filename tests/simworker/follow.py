"""What a follower of events believes a worker holds, event by event."""

from collections import Counter
from collections.abc import Iterable

from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EngineHash,
    KVEvent,
)
from simworker.cache import BlockCache

UNSIGNED = 2**64 - 1
Place = tuple[EngineHash, str]


class Believed:
    """Copies of each block in each medium, as events tell them."""

    def __init__(self) -> None:
        self.copies: Counter[Place] = Counter()
        self.parents: dict[EngineHash, EngineHash | None] = {}

    def take(self, events: Iterable[KVEvent]) -> None:
        """Believe these events."""
        for event in events:
            match event:
                case BlockStored():
                    self._store(event)
                case BlockRemoved():
                    for name in event.hashes:
                        self._remove(name, event.medium)
                case BlockUpdated():
                    assert event.medium_before is not None
                    assert event.medium is not None
                    self._remove(event.hash, event.medium_before)
                    self.copies[event.hash, event.medium] += 1
                case AllBlocksCleared() | CacheCreated():
                    self.copies.clear()

    def _store(self, event: BlockStored) -> None:
        parent = event.parent
        for name in event.hashes:
            self.copies[name, event.medium or "GPU"] += 1
            self.parents[name] = parent
            parent = name

    def _remove(self, name: EngineHash, medium: str | None) -> None:
        """Where no medium is told, from wherever it is."""
        if medium is None:
            found = [place for place in self.copies if place[0] == name]
            assert len(found) == 1
            medium = found[0][1]
        assert self.copies[name, medium] > 0
        self.copies[name, medium] -= 1
        if not self.copies[name, medium]:
            del self.copies[name, medium]

    @property
    def places(self) -> set[Place]:
        """Which block is where."""
        return set(self.copies)


def truth(cache: BlockCache) -> set[Place]:
    """The same of the cache itself."""
    return {(held.name, medium) for held in cache.holdings() for medium in held.media}
