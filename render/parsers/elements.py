"""Answers in elements whose tags are between tokens, as Kimi K3 writes them (XTML).

`<|open|>think<|sep|>` to `<|close|>think<|sep|>` is reasoning, `response` is content,
and `tools` holds calls with typed arguments.
"""

import re
from typing import Any

from render.parsers.events import Call, Event, Text
from render.parsers.json_text import NotJson, dump, load
from render.parsers.marked import MarkedParser
from render.parsers.marks import Marks
from render.parsers.tagged_calls import unescaped

OPEN, CLOSE, SEPARATOR = "<|open|>", "<|close|>", "<|sep|>"
END = "<|end_of_msg|>"
DELIMITERS = (OPEN, CLOSE, SEPARATOR, END)
ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
OUTER = ("think", "response", "tools", "message")


class ElementParser(MarkedParser):
    """One answer in elements. `inside` is the element that the prompt has opened."""

    def __init__(self, marks: Marks, *, inside: str) -> None:
        self._marks = marks
        self._open, self._close = marks.of(OPEN), marks.of(CLOSE)
        self._separator = marks.of(SEPARATOR)
        every = "".join(map(marks.of, DELIMITERS))
        self._stops = re.compile(f"[{every}]")
        self._element = inside
        self._space: str | None = ""  # between elements, until there is a text
        self._tag: list[str] | None = None
        self._call = ""
        self._written: list[str] = []  # of a call: what it is if it is none
        self._key = ""
        self._type = ""
        self._value: list[str] = []
        self._arguments: dict[str, Any] = {}

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer."""
        events: list[Event] = []
        tag, self._tag = "".join(self._tag or ()), None
        written, self._written = "".join(self._written), []
        self._element = "response" if self._element == "tools" else self._element
        self._call = ""
        for kept in (written, tag):
            if kept:
                self._pass(kept, events)
        return events

    def _pass(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._tag is not None:
            self._tag.append(text)
            return
        if self._call:
            self._written.append(text)
            self._value.append(text)
        elif self._element == "think":
            events.append(Text("reasoning", self._marks.plain(text)))
        elif self._element == "response" or self._space is None:
            events.append(Text("content", self._marks.plain(text)))
        else:
            self._between(text, events)

    def _between(self, text: str, events: list[Event]) -> None:
        """Text between elements is content; space alone is not."""
        text = (self._space or "") + text
        self._space = text
        if text.strip():
            self._space = None
            events.append(Text("content", self._marks.plain(text)))

    def _mark(self, mark: str, events: list[Event]) -> None:
        if mark in (self._open, self._close) and self._tag is None:
            self._tag = [mark]
        elif mark == self._separator and self._tag is not None:
            tag, self._tag = "".join(self._tag), None
            self._tagged(tag[0], self._marks.plain(tag[1:]), tag + mark, events)
        elif mark != self._marks.of(END):
            self._pass(mark, events)

    def _tagged(self, kind: str, words: str, written: str, events: list[Event]) -> None:
        name, _, rest = words.partition(" ")
        attributes = {key: unescaped(value) for key, value in ATTRIBUTE.findall(rest)}
        opens = kind == self._open
        if self._call:
            self._within_call(name, attributes, written, events, opens=opens)
        elif name == "call" and opens and attributes.get("tool"):
            self._call, self._written = attributes["tool"], [written]
            self._arguments, self._key = {}, ""
        elif name in OUTER:
            self._element = name if opens and name != "message" else ""
            self._space = ""
        else:
            self._pass(written, events)

    def _within_call(
        self,
        name: str,
        attributes: dict[str, str],
        written: str,
        events: list[Event],
        *,
        opens: bool,
    ) -> None:
        self._written.append(written)
        if name == "argument" and opens and not self._key and attributes.get("key"):
            self._key, self._value = attributes["key"], []
            self._type = attributes.get("type", "string")
        elif name == "argument" and not opens and self._key:
            text = self._marks.plain("".join(self._value))
            self._arguments[self._key] = _typed(text, self._type)
            self._key = ""
        elif name == "call" and not opens and not self._key:
            self._finish(events)
        else:
            self._value.append(written)

    def _finish(self, events: list[Event]) -> None:
        try:
            events.append(Call(self._call, dump(self._arguments)))
        except NotJson:
            plain = self._marks.plain("".join(self._written))
            events.append(Text("content", plain))
        self._call, self._written = "", []


def _typed(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    try:
        return load(text)
    except NotJson:
        return text
