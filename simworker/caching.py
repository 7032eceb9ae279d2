"""What an engine does its own way with its cache: names, events, when it stores."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from kvindex.events import KVEvent
from simworker.contents import Style
from simworker.drain import EventBuffer
from simworker.faults.line import Line
from simworker.groups import Groups
from simworker.hashing import Hasher


class Stream(Protocol):
    """Where one rank's events go; `line` is what can happen to them on the way."""

    line: Line

    @property
    def next_sequence(self) -> int:
        """The number of the next message; so many were made."""
        ...

    def publish(self, events: Sequence[KVEvent]) -> None:
        """Number the events of one step and send them."""
        ...

    def begin_anew(self, *, unheard: bool = False) -> None:
        """The process is another one: it numbers from 0.

        `unheard`: it has said more than the one before, and none of it was heard.
        """
        ...


class Caching(msgspec.Struct, frozen=True, kw_only=True):
    """How one engine caches.

    `opening` is what a fresh process says first; `streams` has one for each rank, none
    with events off. `output_at_end` is the scheduler's
    (`EngineSettings`); `windows` are those of further KV cache groups. `buffer` is
    where events wait to be drained, of an engine that has no sockets for them.
    """

    hasher: Hasher
    style: Style
    streams: Sequence[Stream]
    opening: tuple[KVEvent, ...] = ()
    output_at_end: bool = False
    windows: tuple[int, ...] = ()
    full_window: int | None = None
    masks: bool = False
    buffer: EventBuffer | None = None

    def groups(self) -> Groups | None:
        """What repeats events by group; None where there is but one."""
        if not self.windows and self.full_window is None:
            return None
        return Groups(self.windows, full=self.full_window, masks=self.masks)
