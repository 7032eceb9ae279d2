"""Answers that are calls as a whole, with nothing around them that says so.

What begins like calls is kept back to its end. It is calls, or it was text.
"""

import re

from render.parsers.calls import Body, CallFormat, CallParser
from render.parsers.events import Event
from render.parsers.marks import Marks
from render.parsers.values import Tools


class BareParser:
    """Before calls between delimiters, an answer that is nothing but calls.

    `begins` is how such an answer begins.
    """

    def __init__(
        self, format: CallFormat, marks: Marks, tools: Tools, begins: re.Pattern[str]
    ) -> None:
        self._inner = CallParser(format, marks, tools)
        self._format = format
        self._marks = marks
        self._tools = tools
        self._begins = begins
        self._kept: list[str] | None = []
        self._sure = False

    @property
    def begins(self) -> str:
        """The marks that a call begins with."""
        return self._inner.begins

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with this text."""
        if self._kept is None:
            return self._inner.feed(text)
        self._kept.append(text)
        if self._sure:
            return []
        begun = "".join(self._kept)
        self._kept = [begun]
        found = self._begins.fullmatch(begun)
        if found is not None:
            self._sure = found.lastgroup == "sure"
            return []
        self._kept = None
        return self._inner.feed(begun)

    def end(self) -> list[Event]:
        """Calls, or the text that was kept back."""
        text = "".join(self._kept or ())
        kept, self._kept = self._kept, None
        if kept is not None and text:
            calls = self._format.read(Body(text, self._marks, self._tools))
            if calls is not None:
                return [*calls]
            return [*self._inner.feed(text), *self._inner.end()]
        return self._inner.end()


JSON_CALL = re.compile(
    r"\s{0,99}(?:\{\s{0,99}(?:"
    r'"(?:(?:name|type|function|parameters|arguments)"(?P<sure>.*)|[a-z]{0,10})'
    r")?)?",
    re.DOTALL,
)
"""How an answer begins that may be a call in JSON, as far as it has come."""
PYTHON_CALL = re.compile(
    r"\s{0,99}(?:\[\s{0,99}(?:[A-Za-z_][\w.]{0,255}\s{0,99}(?P<sure>\(.*)?)?)?",
    re.DOTALL,
)
"""How an answer begins that may be a list of calls in Python."""
