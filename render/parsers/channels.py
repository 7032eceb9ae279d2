"""Messages in channels, as gpt-oss writes them (Harmony).

`<|channel|>analysis<|message|>` begins reasoning, `final` and `commentary` content, and
` to=functions.NAME` in either place makes it a call. What has another shape is text.
"""

import re
from typing import Literal

from render.parsers.events import Event, Text
from render.parsers.json_calls import named_call
from render.parsers.marked import MarkedParser
from render.parsers.marks import Marks

START, CHANNEL, CONSTRAIN = "<|start|>", "<|channel|>", "<|constrain|>"
MESSAGE, END, CALL, RETURN = "<|message|>", "<|end|>", "<|call|>", "<|return|>"
DELIMITERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
RECIPIENT = re.compile(r"(?:\A|\s)to=([^\s]+)")
FUNCTIONS = "functions."
HEADER = re.compile(
    r"\s*(?:assistant)?(?:\s+to=\S+)?\s*"
    r"(?:<\|channel\|>\s*\w*(?:\s+to=\S+)?\s*(?:<\|constrain\|>\s*\w*)?\s*)?"
)
"""The words of a header that was cut before its message: they say nothing."""
LONGEST_HEADER = 200  # characters


class ChannelParser(MarkedParser):
    """One answer in channels. A header is kept back until it is whole, a call too.

    The answer begins in the header that the prompt has opened (`assistant`).
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._ends = "".join(marks.of(text) for text in (END, CALL, RETURN))
        self._start, self._message = marks.of(START), marks.of(MESSAGE)
        self._channel = marks.of(CHANNEL)
        self._stops = re.compile(f"[{self._ends}{self._start}{self._message}]")
        self._header: list[str] | None = []
        self._begun = ""  # the mark a header began with
        self._kind: Literal["reasoning", "content"] = "content"
        self._call = ""
        self._body: list[str] = []
        self._written = ""

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer."""
        events: list[Event] = []
        if self._header is not None:
            self._say("".join(self._header), events, markup=not self._is_plain())
        self._finish("", events)
        self._header = None
        return events

    def _is_plain(self) -> bool:
        """Whether what is kept as a header is text: no channel was named."""
        return self._channel not in "".join(self._header or ()) and not self._begun

    def _pass(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._header is not None:
            self._header.append(text)
        elif self._call:
            self._body.append(text)
        else:
            self._say(text, events)

    def _mark(self, mark: str, events: list[Event]) -> None:
        if mark == self._message and self._header is not None:
            self._open("".join(self._header))
        elif mark == self._message:
            self._pass(mark, events)
        else:
            if self._header is not None:
                self._say("".join(self._header), events, markup=True)
            self._finish(mark, events)
            self._header = []
            self._begun = mark

    def _open(self, header: str) -> None:
        """A message begins: what its header says of it."""
        channel = header.partition(self._channel)[2]
        plain = self._marks.plain(header.replace(self._channel, " "))
        plain = plain.replace(CONSTRAIN, " ")
        name = re.match(r"\s*(\w*)", channel)
        recipient = RECIPIENT.search(plain)
        self._header = None
        self._kind = "reasoning" if name and name[1] == "analysis" else "content"
        self._call = ""
        if recipient is not None and recipient[1] != "assistant":
            self._call = recipient[1]
        self._written = header + self._message

    def _finish(self, mark: str, events: list[Event]) -> None:
        """The end of a message: of a call, whether it is one."""
        recipient, self._call = self._call, ""
        body, self._body = "".join(self._body), []
        if not recipient:
            return
        calls = None
        if recipient.startswith(FUNCTIONS):
            name = recipient.removeprefix(FUNCTIONS)
            calls = named_call(name, self._marks.plain(body))
        if calls is not None:
            events += calls
        elif recipient.startswith(FUNCTIONS):
            self._say(self._written + body + mark, events)
        else:
            self._say(body, events)

    def _say(self, marked: str, events: list[Event], *, markup: bool = False) -> None:
        """Text of the message; `markup` is whether it may be only a header's words."""
        text = self._marks.plain(marked)
        if markup and len(text) <= LONGEST_HEADER and HEADER.fullmatch(text):
            return
        if text:
            events.append(Text(self._kind, text))
