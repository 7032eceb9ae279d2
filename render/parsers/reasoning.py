"""Reasoning between two marks, before the answer; what is not reasoning goes on."""

import re
from collections.abc import Mapping

import msgspec

from render.parsers.events import Event, Text
from render.parsers.marks import Marks


class ReasoningFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How one family of models writes reasoning.

    `inside` is whether an answer begins in it where neither prompt nor request say;
    `switches` are the template variables that say, and what they are without being
    given. `label` follows the opening mark, `through` is whether calls may begin
    without a closing one. `opens` and `closes` may have several spellings, `dropped`
    are marks around the answer itself. `suffixed` is whether a tokenizer may have the
    marks with something after their names.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    inside: bool = False
    switches: tuple[str, ...] = ("enable_thinking", "thinking")
    label: str = ""
    through: bool = False
    dropped: tuple[str, ...] = ()
    suffixed: bool = False

    @property
    def delimiters(self) -> tuple[str, ...]:
        """Every delimiter there is."""
        return (*self.opens, *self.closes, *self.dropped)

    def begins_inside(
        self, prompt: str | None, marks: Marks, variables: Mapping[str, object]
    ) -> bool:
        """Whether an answer begins inside its reasoning.

        `prompt` is the marked text that stands before it, after the last turn's mark.
        """
        opened, closed = (
            max((prompt or "").rfind(marks.of(text)) for text in texts)
            for texts in (self.opens, self.closes)
        )
        if opened != closed:
            return opened > closed
        for name in self.switches:
            if isinstance(variables.get(name), bool):
                return self.inside and bool(variables[name])
        return self.inside


class ReasoningParser:
    """Splits one answer: events for the reasoning, the marked text that is left."""

    def __init__(
        self, format: ReasoningFormat, marks: Marks, *, inside: bool, calls: str
    ) -> None:
        """`calls` are the marks that calls begin with."""
        self._marks = marks
        self._label = format.label
        self._label_left = "" if inside else format.label
        self._opens = {marks.of(text) for text in format.opens}
        self._closes = {marks.of(text) for text in format.closes}
        self._dropped = {marks.of(text) for text in format.dropped}
        self._calls = {*calls} if format.through else set()
        self._inside = inside
        self._may_open = True
        self._kept = ""
        every = self._opens | self._closes | self._calls | self._dropped
        self._search = re.compile("[" + re.escape("".join(sorted(every))) + "]")

    @property
    def inside(self) -> bool:
        """Whether what comes next is reasoning."""
        return self._inside

    def feed(self, text: str) -> tuple[list[Event], str]:
        """What is reasoning, and what is not: that comes after it."""
        events: list[Event] = []
        rest: list[str] = []
        place = 0
        for found in self._search.finditer(text):
            self._pass(text[place : found.start()], events, rest)
            place = found.end()
            self._mark(found.group(), events, rest)
        self._pass(text[place:], events, rest)
        return events, "".join(rest)

    def end(self) -> tuple[list[Event], str]:
        """What was kept back of a label, at the end of the answer."""
        kept, self._kept, self._label_left = self._kept, "", ""
        events: list[Event] = []
        rest: list[str] = []
        self._pass(kept, events, rest)
        return events, "".join(rest)

    def _pass(self, text: str, events: list[Event], rest: list[str]) -> None:
        if not text:
            return
        if not self._inside:
            self._may_open = self._may_open and not text.strip()
            rest.append(text)
            return
        text = self._unlabelled(text)
        if text:
            events.append(Text("reasoning", self._marks.plain(text)))

    def _unlabelled(self, text: str) -> str:
        """The reasoning without the label it begins with."""
        if not self._label_left:
            return text
        text = self._kept + text
        self._kept = ""
        if len(text) < len(self._label_left) and self._label_left.startswith(text):
            self._kept = text
            return ""
        label, self._label_left = self._label_left, ""
        return text.removeprefix(label)

    def _mark(self, mark: str, events: list[Event], rest: list[str]) -> None:
        if self._inside and mark in self._closes:
            self._flush(events)
            self._inside = False
        elif self._inside and mark in self._calls:
            self._flush(events)
            self._inside = self._may_open = False
            rest.append(mark)
        elif self._inside and mark not in self._opens:
            self._pass(mark, events, rest)
        elif not self._inside and mark in self._opens and self._may_open:
            self._inside, self._label_left = True, self._label
        elif not self._inside and not self._is_markup(mark):
            self._may_open = False
            rest.append(mark)

    def _is_markup(self, mark: str) -> bool:
        """Whether a mark outside of the reasoning says nothing."""
        return mark in self._dropped or (mark in self._closes and self._may_open)

    def _flush(self, events: list[Event]) -> None:
        kept, self._kept, self._label_left = self._kept, "", ""
        if kept:
            events.append(Text("reasoning", self._marks.plain(kept)))
