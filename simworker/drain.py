"""The event buffer of a TensorRT-LLM worker: filled by ranks, drained by a POST.

Who drains gets all that is there, once; who drains too gets the rest. What does not
fit is lost, the oldest events first, and nobody is told.
"""

from collections import deque
from collections.abc import Callable, Sequence

from kvindex.events import KVEvent
from simworker.faults.line import Line

Encode = Callable[[KVEvent, int, int], bytes]
"""An event's JSON, from the event, its number and its rank."""


class EventBuffer:
    """The events of all ranks of a worker, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._events: deque[bytes] = deque(maxlen=limit)
        self.drains = 0
        self.lost = 0

    def put(self, payload: bytes) -> None:
        """One event more; the oldest one goes where there is no room."""
        self.lost += len(self._events) == self._events.maxlen
        self._events.append(payload)

    def drain(self) -> bytes:
        """All events as a JSON array; none of them is here any more."""
        self.drains += 1
        body = b"[%b]" % b",".join(self._events)
        self.clear()
        return body

    def clear(self) -> None:
        """No event is here any more."""
        self._events.clear()


class RankEvents:
    """One attention-DP rank's events on their way into the buffer."""

    def __init__(self, buffer: EventBuffer, encode: Encode, *, rank: int) -> None:
        self._encode = encode
        self._rank = rank
        self._next_id = 0
        self.line = Line(lambda _, payload: buffer.put(payload), json=True)

    @property
    def next_sequence(self) -> int:
        """The id of the next event; so many there were."""
        return self._next_id

    def publish(self, events: Sequence[KVEvent]) -> None:
        """Give each event an id and put it into the buffer."""
        for event in events:
            event_id = self._next_id
            self._next_id += 1
            self.line.take(event_id, self._encode(event, event_id, self._rank))

    def begin_anew(self, *, unheard: bool = False) -> None:
        """The process is another one: ids from 0.

        `unheard`: it has had more events than the one before, and all were lost.
        """
        self._next_id = self._next_id + 1 if unheard else 0
        self.line.clear()
