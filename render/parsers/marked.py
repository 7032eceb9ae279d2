"""What parsers of marked text share: text between marks, and marks, in their order.

Not here: what a mark means (`blocks.py`, `channels.py`, `elements.py`,
`recipients.py`).
"""

import re

from render.parsers.events import Event


class MarkedParser:
    """Takes an answer mark by mark; `_stops` finds the marks it stops at."""

    _stops: re.Pattern[str]

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with this text."""
        events: list[Event] = []
        place = 0
        for found in self._stops.finditer(text):
            self._pass(text[place : found.start()], events)
            self._mark(found.group(), events)
            place = found.end()
        self._pass(text[place:], events)
        return events

    def _pass(self, text: str, events: list[Event]) -> None:
        """Text between marks, which may be empty."""
        raise NotImplementedError

    def _mark(self, mark: str, events: list[Event]) -> None:
        """One mark."""
        raise NotImplementedError
