"""Answers that had to be calls (`tool_choice` required or named).

Grammars make them JSON without a parser's delimiters. The content is kept back to the
end, or to a call with delimiters: it is calls then, or it was text.
"""

from collections.abc import Sequence

from render.parsers.events import Call, Event, Text
from render.parsers.json_calls import calls_of, named_call
from render.parsers.json_text import NotJson, load


class ForcedCalls:
    """Keeps back content until it is known what it is. `name` is a named tool's."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._content: list[Text] = []
        self._called = False

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """The events that are certain: reasoning, and all from a delimited call on.

        What stood before such a call was text.
        """
        out: list[Event] = []
        for event in events:
            if isinstance(event, Call) and not self._called:
                self._called = True
                out += self._content
                self._content = []
            if isinstance(event, Text) and event.kind == "content" and not self._called:
                self._content.append(event)
            else:
                out.append(event)
        return out

    def end(self) -> list[Event]:
        """The calls that the content is; the content if it is none."""
        content, self._content = self._content, []
        calls = self._calls("".join(event.text for event in content))
        return [*(content if calls is None else calls)]

    def _calls(self, text: str) -> list[Call] | None:
        if self._name is not None:
            return named_call(self._name, text)
        try:
            return calls_of(load(text))
        except NotJson:
            return None
