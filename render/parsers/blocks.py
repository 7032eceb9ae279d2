"""Answers in blocks that say what they are, as Inkling writes them.

`<|message_model|><|content_thinking|>` begins reasoning, `<|content_text|>` content and
`<|content_invoke_tool_json|>` a call, each up to `<|end_message|>`. What stands between
a message's mark and that of its kind is a name, and no text.
"""

import re
from typing import Literal

from render.parsers.events import Call, Event, Text
from render.parsers.json_calls import call_of
from render.parsers.json_text import NotJson, load
from render.parsers.marked import MarkedParser
from render.parsers.marks import Marks

MESSAGE, END = "<|message_model|>", "<|end_message|>"
END_SAMPLING = "<|content_model_end_sampling|>"
THINKING, CALL = "<|content_thinking|>", "<|content_invoke_tool_json|>"
TEXT = "<|content_text|>"
TEXTS = (TEXT, "<|content_invoke_tool_text|>", "<|content_tool_error|>")
DELIMITERS = (MESSAGE, END, END_SAMPLING, THINKING, CALL, *TEXTS)

State = Literal["header", "between", "reasoning", "content", "call"]
"""In a message whose kind is not said yet, after one, or in one of a kind."""


class BlockParser(MarkedParser):
    """One answer in blocks. `prompt` is the marked text that stands before it."""

    def __init__(self, marks: Marks, prompt: str | None) -> None:
        self._marks = marks
        self._ends = {marks.of(END), marks.of(END_SAMPLING)}
        self._kinds: dict[str, State] = {marks.of(text): "content" for text in TEXTS}
        self._kinds |= {marks.of(THINKING): "reasoning", marks.of(CALL): "call"}
        self._message = marks.of(MESSAGE)
        every = "".join([*self._ends, *self._kinds, self._message])
        self._stops = re.compile(f"[{re.escape(every)}]")
        self._state: State = self._begun(prompt)
        self._kept: list[str] = []  # of a header, or of a call: with its mark

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer: it is text."""
        events: list[Event] = []
        self._say("".join(self._kept), events)
        self._kept = []
        return events

    def _begun(self, prompt: str | None) -> State:
        """What the prompt's last mark says of the answer's beginning."""
        marks = self._stops.findall(prompt or "")
        last = marks[-1] if marks else self._message
        if last == self._message:
            return "header"
        return self._kinds.get(last, "between")

    def _pass(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._state in ("header", "call"):
            self._kept.append(text)
        elif self._state == "reasoning":
            events.append(Text("reasoning", self._marks.plain(text)))
        else:
            self._say(text, events)

    def _mark(self, mark: str, events: list[Event]) -> None:
        if self._state == "call":
            self._close(mark if mark in self._ends else "", events)
        kept, self._kept = "".join(self._kept), []
        if mark in self._kinds:
            self._state = self._kinds[mark]
            self._kept = [mark] if self._state == "call" else []
        elif mark == self._message:
            self._say(kept, events)  # a message without a kind was text
            self._state = "header"
        else:
            self._say(kept, events)
            self._state = "between"

    def _close(self, end: str, events: list[Event]) -> None:
        """The end of a call: whether it is one."""
        written, self._kept = "".join(self._kept), []
        call = _call(self._marks.plain(written[1:]))
        if call is not None:
            events.append(call)
        else:
            self._say(written + end, events)

    def _say(self, marked: str, events: list[Event]) -> None:
        if marked:
            events.append(Text("content", self._marks.plain(marked)))


def _call(text: str) -> Call | None:
    """The call of an object with a name and `args`."""
    try:
        value = load(text)
    except NotJson:
        return None
    if isinstance(value, dict) and "args" in value:
        value = {"name": value.get("name"), "arguments": value["args"]}
    return call_of(value)
