"""How much of clients' bodies is held in memory: of all of them together.

A body is held from its first piece until its request is answered, as it may have to be
sent a second time. One body's own limit is another (`--max-body`).
"""

from types import TracebackType

from gateway.errors import Overloaded


class Room:
    """The bytes there may be, and those that are."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def share(self) -> "Share":
        """The share of one request, empty so far."""
        return Share(self)


class Share:
    """What one request holds; given back at the latest at the end of its context."""

    __slots__ = ("_room", "_size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def take(self, size: int) -> None:
        """Hold so many bytes more; Overloaded where there is no room for them.

        A body that is alone always has room.
        """
        held = self._room.held
        if held + size > self._room.most and held > self._size:
            raise Overloaded("the gateway holds as many request bodies as it may")
        self._size += size
        self._room.held += size

    def release(self) -> None:
        """Give all of it back. Idempotent."""
        self._room.held -= self._size
        self._size = 0

    def __enter__(self) -> "Share":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
