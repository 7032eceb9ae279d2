"""The way of messages from a publisher to who listens, and what happens on it."""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from simworker.faults.record import NONE, Faults
from simworker.faults.spoiling import spoilt

Message = tuple[int, bytes]


class Line:
    """Passes numbered messages to `send`, but for what its faults do to them.

    `json` is the payloads' format; else it is msgpack. `played` counts the faults done.
    """

    def __init__(self, send: Callable[[int, bytes], None], *, json: bool) -> None:
        self._send = send
        self._json = json
        self._held: list[Message] = []
        self._late: deque[tuple[float, int, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.faults = NONE
        self.played: dict[str, int] = {}

    @property
    def at_rest(self) -> bool:
        """Whether messages pass as they should, and none is under way."""
        faults = msgspec.structs.replace(self.faults, spoil="", spoil_count=1)
        spoils = self.faults.spoil and self.faults.spoil_count
        return faults == NONE and not (spoils or self._held or self._late)

    def play(self, faults: Faults) -> None:
        """Play these faults from now on; messages that were held back go out."""
        self._release()
        self.faults = faults

    def take(self, sequence: int, payload: bytes) -> None:
        """A message begins its way."""
        faults = self.faults
        if faults.mute or self._count_down("drop"):
            self.count("mute" if faults.mute else "drop")
            return
        if self._count_down("spoil_count" if faults.spoil else ""):
            self.count(faults.spoil)
            payload = spoilt(faults.spoil, payload, json=self._json)
        if faults.reorder or self._held:
            self._hold(sequence, payload)
            return
        self._deliver(sequence, payload)
        if self._count_down("duplicate"):
            self.count("duplicate")
            self._deliver(sequence, payload)

    def count(self, fault: str) -> None:
        """A fault was played once more."""
        self.played[fault] = self.played.get(fault, 0) + 1

    def count_down(self, name: str) -> bool:
        """Whether a fault that is told by a count is to be played now."""
        if self._count_down(name):
            self.count(name)
            return True
        return False

    def _count_down(self, name: str) -> bool:
        left: int = getattr(self.faults, name) if name else 0
        if left:
            changed = {name: left - 1}
            self.faults = msgspec.structs.replace(self.faults, **changed)
        return left > 0

    def _hold(self, sequence: int, payload: bytes) -> None:
        self._held.append((sequence, payload))
        self._count_down("reorder")
        if not self.faults.reorder:
            self.count("reorder")
            self._release()

    def _release(self) -> None:
        """What is held back goes out, the last one first."""
        held, self._held = self._held, []
        for sequence, payload in reversed(held):
            self._deliver(sequence, payload)

    def _deliver(self, sequence: int, payload: bytes) -> None:
        delay_s = self.faults.delay_s
        if not delay_s and not self._late:
            self._send(sequence, payload)
            return
        if delay_s:
            self.count("delay")
        due = asyncio.get_running_loop().time() + delay_s
        # Those that are under way stay ahead of what comes later.
        due = max(due, self._late[-1][0]) if self._late else due
        self._late.append((due, sequence, payload))
        if len(self._late) == 1:
            self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._late[0][0], self._arrive)

    def _arrive(self) -> None:
        """The first of the late ones is there, and those as late as it is."""
        due = self._late[0][0]
        while self._late and self._late[0][0] <= due:
            _, sequence, payload = self._late.popleft()
            self._send(sequence, payload)
        if self._late:
            self._wait()

    def clear(self) -> None:
        """What is under way never arrives."""
        if self._timer is not None:
            self._timer.cancel()
        self._late.clear()
        self._held.clear()
