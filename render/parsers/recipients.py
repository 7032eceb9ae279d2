"""Messages to recipients, as Muse Glimmer writes them (ATEM).

` to=self<|message|>` begins reasoning, ` to=user<|message|>` content, and any other
recipient is a tool: its message holds calls in tags. A message ends with `<|eom|>` or
`<|eot|>`, or where the next one's header begins.
"""

import re
from typing import Any, Literal

from render.parsers.events import Call, Event, Text
from render.parsers.json_text import NotJson, dump, load
from render.parsers.marked import MarkedParser
from render.parsers.marks import Marks
from render.parsers.values import Tools

START, MESSAGE, END, END_OF_TURN = "<|start|>", "<|message|>", "<|eom|>", "<|eot|>"
DELIMITERS = (START, MESSAGE, END, END_OF_TURN)
HEADER = re.compile(r"\s*(?:assistant)?\s*(?:to=([\w.\-]+))?\s*")
BEGUN_HEADER = re.compile(
    r"\s{0,99}(?:a|as|ass|assi|assis|assist|assista|assistan|assistant)?\s{0,99}"
    r"(?:t|to|to=[\w.\-]{0,255})?\s{0,99}"
)
"""A header as far as it has come."""
BARE_HEADER = re.compile(r"[ \t]+(?:t|to|to=[\w.\-]{0,255})?\Z")
"""What may become a header at the end of a message that was not ended."""
INVOKE, INVOKE_END = "<atem:invoke", "</atem:invoke>"
NAME = re.compile(r'[^>]*?\bname="([^"]+)"[^>]*>')
PARAMETER, PARAMETER_END = "<atem:parameter", "</atem:parameter>"
REASONING, USER = "self", "user"

Kind = Literal["reasoning", "content", "call"]


class RecipientParser(MarkedParser):
    """One answer in messages. It begins in the header that the prompt has opened."""

    def __init__(self, marks: Marks, tools: Tools) -> None:
        self._marks = marks
        self._tools = tools
        self._ends = marks.of(END) + marks.of(END_OF_TURN)
        self._start, self._message = marks.of(START), marks.of(MESSAGE)
        self._stops = re.compile(f"[{self._ends}{self._start}{self._message}]")
        self._header: str | None = ""
        self._begun = ""  # the mark that a header began with
        self._kind: Kind = "content"
        self._kept: list[str] = []  # of a call, or what may be a header

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer."""
        events: list[Event] = []
        if self._header is not None and not self._begun:
            self._say(self._header, events)
        self._finish(events)
        self._header = None
        return events

    def _pass(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._header is not None:
            self._header += text
            if not BEGUN_HEADER.fullmatch(self._header):  # it is none, but text
                header, self._header, self._kind = self._header, None, "content"
                self._pass(header, events)
        elif self._kind == "call":
            self._kept.append(text)
        else:
            self._pass_on(text, events)

    def _pass_on(self, text: str, events: list[Event]) -> None:
        """Text of a message, but for an end of it that may become a header."""
        text = "".join(self._kept) + text
        window = max(0, len(text) - 400)
        found = BARE_HEADER.search(text, window)
        place = len(text) if found is None else found.start()
        self._kept = [text[place:]] if place < len(text) else []
        self._say(text[:place], events)

    def _mark(self, mark: str, events: list[Event]) -> None:
        if mark == self._message:
            self._open(events)
            return
        if self._header is not None and mark == self._start and not self._begun:
            self._say(self._header if self._header.strip() else "", events)
        self._finish(events)
        self._header, self._begun = "", mark

    def _open(self, events: list[Event]) -> None:
        """A message begins: whom it is for."""
        header = self._header
        if header is None:
            kept = "".join(self._kept)
            bare = HEADER.fullmatch(kept) if self._kind != "call" else None
            if bare is None or bare[1] is None:
                self._pass(self._message, events)
                return
            self._kept, header = [], kept
        found = HEADER.fullmatch(header)
        recipient = found[1] if found is not None else None
        kinds: dict[str | None, Kind] = {
            REASONING: "reasoning",
            USER: "content",
            None: "content",
        }
        self._kind = kinds.get(recipient, "call")
        self._header, self._begun = None, ""

    def _finish(self, events: list[Event]) -> None:
        """The end of a message: of a tool's, whether there are calls in it."""
        kept, self._kept = "".join(self._kept), []
        if self._header is not None or not kept:
            return
        calls = self._calls(self._marks.plain(kept)) if self._kind == "call" else []
        events += calls
        if not calls:
            self._say(kept, events)

    def _calls(self, text: str) -> list[Call]:
        """The whole calls of a tool's message."""
        calls: list[Call] = []
        place = 0
        while (begin := text.find(INVOKE, place)) >= 0:
            place = text.find(INVOKE_END, begin)
            if place < 0:
                break
            call = self._call(text[begin + len(INVOKE) : place])
            calls += [call] if call is not None else []
        return calls

    def _call(self, text: str) -> Call | None:
        head = NAME.match(text)
        if head is None:
            return None
        arguments: dict[str, Any] = {}
        place = head.end()
        while (begin := text.find(PARAMETER, place)) >= 0:
            place = text.find(PARAMETER_END, begin)
            opened = NAME.match(text, begin + len(PARAMETER))
            if place < 0 or opened is None or opened.end() > place:
                return None
            arguments[opened[1]] = _value(text[opened.end() : place])
        try:
            return Call(self._name(head[1]), dump(arguments))
        except NotJson:
            return None

    def _name(self, written: str) -> str:
        """The name of a tool that the template has doubled: `f.f` is `f`."""
        first, _, second = written.partition(".")
        doubled = first == second and first in self._tools
        return first if doubled and written not in self._tools else written

    def _say(self, marked: str, events: list[Event]) -> None:
        if marked:
            text = self._marks.plain(marked)
            kind = self._kind
            events.append(Text("content" if kind == "call" else kind, text))


def _value(text: str) -> Any:
    try:
        return load(text)
    except NotJson:
        return text
