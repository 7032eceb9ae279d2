"""A dictionary that grows in small steps.

A dictionary that is full moves all its entries to a larger table at once, and one that
goes gives its table back at once: of a million entries each takes tens of milliseconds.
So more than a few are spread over a fixed number of dictionaries, each of which grows,
and is freed, for itself.

Not here: how many entries there may be.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SHARDS = 251
"""Prime, so that the keys of a shard differ in the bits by which it places them."""
UNSPREAD = 4_096
"""Entries up to which there is one dictionary: to spread them takes a millisecond."""


class ShardedDict(Generic[K, V]):
    """Keys to values, of which none is None, in no order.

    `entries` is how many; `shards` are the dictionaries, to be freed or looked at.
    """

    __slots__ = ("_next", "entries", "shards")

    def __init__(self) -> None:
        self.shards: list[dict[K, V]] = [{}]
        self.entries = self._next = 0

    def __len__(self) -> int:
        return self.entries

    def __contains__(self, key: K) -> bool:
        return key in self.shards[hash(key) % len(self.shards)]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.shards)

    def values(self) -> Iterator[V]:
        """All values."""
        return chain.from_iterable(shard.values() for shard in self.shards)

    def get(self, key: K) -> V | None:
        """The value of a key, if it is here."""
        return self.shards[hash(key) % len(self.shards)].get(key)

    def __getitem__(self, key: K) -> V:
        return self.shards[hash(key) % len(self.shards)][key]

    def __setitem__(self, key: K, value: V) -> None:
        shard = self.shards[hash(key) % len(self.shards)]
        before = len(shard)
        shard[key] = value
        if len(shard) != before:
            self.entries += 1
            self._prepare(0)

    def pop(self, key: K) -> V | None:
        """The value of a key, if it was here; it is no more."""
        shard = self.shards[hash(key) % len(self.shards)]
        value = shard.pop(key, None)
        if value is not None:
            self.entries -= 1
            if not shard:
                shard.clear()  # it keeps its size; a new one would pin old memory
        return value

    def popitem(self) -> tuple[K, V]:
        """Any entry, taken out; there must be one."""
        while not self.shards[self._next]:
            self._next = (self._next + 1) % len(self.shards)
        shard = self.shards[self._next]
        taken = shard.popitem()
        self.entries -= 1
        if not shard:
            shard.clear()
        return taken

    def drop(self, keys: Iterable[K], where: Callable[[V], bool]) -> list[K]:
        """Take out those of the keys whose value is such; which these were."""
        shards, dropped = self.shards, []
        count = len(shards)
        for key in keys:
            shard = shards[hash(key) % count]
            value = shard.get(key)
            if value is not None and where(value):
                del shard[key]
                dropped.append(key)
                if not shard:
                    shard.clear()
        self.entries -= len(dropped)
        return dropped

    def extend(self, keys: Collection[K], values: Iterable[V]) -> None:
        """Enter keys that are all different, and none of them here."""
        self._prepare(len(keys))
        shards = self.shards
        if len(shards) == 1:
            shards[0].update(zip(keys, values, strict=False))
        else:
            for key, value in zip(keys, values, strict=False):
                shards[hash(key) % SHARDS][key] = value
        self.entries += len(keys)

    def update(self, keys: Collection[K], values: Iterable[V]) -> None:
        """Set any keys."""
        self.extend(keys, values)
        self.entries = sum(map(len, self.shards))

    def has_none_of(self, keys: Iterable[K]) -> bool:
        """Is none of these keys here?"""
        shards = self.shards
        if len(shards) == 1:
            return shards[0].keys().isdisjoint(keys)
        return not [key for key in keys if key in shards[hash(key) % SHARDS]]

    def _prepare(self, more: int) -> None:
        """Let so many more come: spread all over the shards, where it is time to."""
        if len(self.shards) > 1 or self.entries + more <= UNSPREAD:
            return
        (one,) = self.shards
        self.shards = [{} for _ in range(SHARDS)]
        for key, value in one.items():
            self.shards[hash(key) % SHARDS][key] = value
