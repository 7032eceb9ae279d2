"""One answer parsed: marks, reasoning, calls, in this order, as its text comes.

The events are the same however the text is cut, up to where pieces of text are.
"""

from collections.abc import Mapping, Sequence

from render.parsers.bare_calls import BareParser
from render.parsers.calls import CallParser
from render.parsers.events import Call, Event, Text
from render.parsers.formats import Format, Stage
from render.parsers.marks import Marks
from render.parsers.reasoning import ReasoningParser
from render.parsers.values import Tools


class AnswerParser:
    """Parses one answer; its text comes with the marks of `format.marks` by id.

    `prompt` is the marked text before the answer, None if it is not known; `variables`
    are the request's template variables.
    """

    def __init__(
        self,
        format: Format,
        marks: Marks,
        *,
        tools: Tools,
        calls: bool,
        prompt: str | None,
        variables: Mapping[str, object],
    ) -> None:
        self._finder = marks.finder()
        self._marks = marks
        self._tidy = _Tidy()
        self._reasoning: ReasoningParser | None = None
        self._stage: Stage | None = None
        if format.whole is not None:
            self._stage = format.whole(marks, tools, prompt)
            return
        call_parser: CallParser | BareParser | None = None
        if calls and format.calls is not None:
            call_parser = (
                CallParser(format.calls, marks, tools)
                if format.bare is None
                else BareParser(format.calls, marks, tools, format.bare)
            )
            self._stage = call_parser
        if format.reasoning is not None:
            self._reasoning = ReasoningParser(
                format.reasoning,
                marks,
                inside=format.reasoning.begins_inside(prompt, marks, variables),
                calls=call_parser.begins if call_parser is not None else "",
            )

    @property
    def reasons(self) -> bool:
        """Whether what comes next is reasoning."""
        return self._reasoning is not None and self._reasoning.inside

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with this marked text."""
        return self._tidy.feed(self._marked(self._finder.feed(text)))

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer."""
        events = self._marked(self._finder.end())
        if self._reasoning is not None:
            ended, rest = self._reasoning.end()
            events += ended + self._staged(rest)
        if self._stage is not None:
            events += self._stage.end()
        return self._tidy.end(events)

    def _marked(self, text: str) -> list[Event]:
        if self._reasoning is None:
            return self._staged(text)
        events, rest = self._reasoning.feed(text)
        return [*events, *self._staged(rest)]

    def _staged(self, text: str) -> list[Event]:
        if not text:
            return []
        if self._stage is not None:
            return self._stage.feed(text)
        return [Text("content", self._marks.plain(text))]


class _Tidy:
    """Leaves out the space that stands between calls, and before the first.

    Such space is kept back until something follows it.
    """

    def __init__(self) -> None:
        self._space: list[Event] = []
        self._spoke = False
        self._called = False

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """The events without space that is only markup."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Call):
                self._space = []
                self._called, self._spoke = True, False
                out.append(event)
            elif event.kind == "reasoning" or self._spoke:
                out.append(event)
            elif event.text.strip():
                out += [*self._space, event]
                self._space, self._spoke = [], True
            else:
                self._space.append(event)
        return out

    def end(self, events: Sequence[Event]) -> list[Event]:
        """The last events; space is content if there was no call."""
        out = self.feed(events)
        space, self._space = self._space, []
        return out if self._called else [*out, *space]
