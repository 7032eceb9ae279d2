"""A queue that is fair to clients: their turns go round. Plain data, no waiting."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What waits, by client; a client is no longer known when nothing of it waits.

    One client's are in the order they came. Each takes at most one turn in a round,
    and a client that comes anew has its first turn at the end of this one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str | None, dict[T, None]] = {}
        """Clients in the order of their next turns; their requests as they came."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, client: str | None, item: T) -> None:
        """One more waits."""
        self._waiting.setdefault(client, {})[item] = None
        self._size += 1

    def discard(self, client: str | None, item: T) -> None:
        """It does not wait any more. Idempotent."""
        items = self._waiting.get(client)
        if items is None or item not in items:
            return
        del items[item]
        self._size -= 1
        if not items:
            del self._waiting[client]

    def served(self, client: str | None, item: T) -> None:
        """It had its turn: the client's next one comes after all others'."""
        self.discard(client, item)
        items = self._waiting.pop(client, None)
        if items is not None:
            self._waiting[client] = items

    def in_turn(self) -> Iterator[tuple[str | None, T]]:
        """All that wait, in the order of their turns: round by round."""
        rounds = [(client, iter(items)) for client, items in self._waiting.items()]
        while rounds:
            left = []
            for client, items in rounds:
                for item in items:
                    yield client, item
                    left.append((client, items))
                    break
            rounds = left

    def last_of_longest(self, but: str | None) -> tuple[str | None, T] | None:
        """The last of whoever has most that wait, if more than `but` with one more."""
        if not self._waiting:
            return None
        client, items = max(self._waiting.items(), key=lambda pair: len(pair[1]))
        if len(items) <= len(self._waiting.get(but, ())) + 1:
            return None
        return client, next(reversed(items))
