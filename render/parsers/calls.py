"""Calls between delimiters, found in an answer as it comes.

A call is kept back until it is whole, and is then an event. What is no call after all
stays text, delimiters included; but a call that the answer ends in the middle of is
left out if there are whole ones. Space between calls, and the delimiters of a section
that holds some, are markup and left out.
"""

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from render.parsers.events import Call, Event, Text
from render.parsers.marks import Marks
from render.parsers.scans import Scan
from render.parsers.values import Tools


class Body(msgspec.Struct, frozen=True):
    """The body of a call, marks included, and what reading it needs."""

    text: str
    marks: Marks
    tools: Tools

    def mark(self, delimiter: str) -> str:
        """The mark of a delimiter, for a regular expression."""
        return re.escape(self.marks.of(delimiter))


Section = Literal["opened", "called", "said"]
"""A section of calls: only opened, with a call in it, or found to be text."""
Read = Callable[[Body], list[Call] | None]
"""The calls of a body; None if it is not one."""


class CallFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How one family of models writes calls.

    `opens` begin a call, `closes` end it, `section` is around several; `others` are
    further delimiters inside. `scan` finds the end of a body, `read` reads it.
    `sections` are further spellings of a section's opening. `begins` are what the body
    of a call may begin with, if that is known. `suffixed` is whether a
    tokenizer may have the delimiters with something after their names.
    """

    opens: tuple[str, ...]
    read: Read
    scan: Callable[[Marks], Scan]
    closes: tuple[str, ...] = ()
    section: tuple[str, str] | None = None
    sections: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    begins: str = ""
    suffixed: bool = False

    @property
    def delimiters(self) -> tuple[str, ...]:
        """Every delimiter there is."""
        section = self.section or ()
        return (*self.opens, *self.closes, *section, *self.sections, *self.others)


class CallParser:
    """Finds the calls of one answer; the rest is content."""

    def __init__(self, format: CallFormat, marks: Marks, tools: Tools) -> None:
        self._format = format
        self._marks = marks
        self._tools = tools
        self._opens = {marks.of(text) for text in format.opens}
        self._closes = {marks.of(text) for text in format.closes}
        begins = (format.section[0], *format.sections) if format.section else ()
        self._begins = {marks.of(text) for text in begins}
        self._ends = {marks.of(format.section[1])} if format.section else set()
        every = self._opens | self._begins | self._ends
        self._search = re.compile("[" + "".join(map(re.escape, every)) + "]")
        self._scan: Scan | None = None
        self._open = ""
        self._body: list[str] = []
        self._section: Section | None = None
        self._aside: list[str] = []  # of a section: text that may be only markup
        self._called = False

    @property
    def begins(self) -> str:
        """The marks that a call or a section of them begins with."""
        return "".join(self._opens | self._begins)

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with this text."""
        events: list[Event] = []
        while text:
            if self._scan is not None:
                text = self._call(text, events)
            else:
                text = self._text(text, events)
        return events

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer."""
        events: list[Event] = []
        if self._scan is not None:
            whole = self._scan.end()
            body = "".join(self._body).rstrip()
            close = body[-1:] if whole and body[-1:] in self._closes else ""
            self._body = [body[:-1]] if close else self._body
            self._close(close, events, whole=whole)
        self._leave("", events)
        return events

    def _text(self, text: str, events: list[Event]) -> str:
        """To the next mark that matters; what is left of the text."""
        found = self._search.search(text)
        place = len(text) if found is None else found.start()
        if self._section is not None:
            self._aside.append(text[:place])
        else:
            self._say(text[:place], events)
        if found is None:
            return ""
        self._mark(found.group(), events)
        return text[found.end() :]

    def _mark(self, mark: str, events: list[Event]) -> None:
        if mark in self._opens:
            self._open, self._body = mark, []
            self._scan = self._format.scan(self._marks)
        elif mark in self._begins and self._section is None:
            self._section, self._aside = "opened", [mark]
        elif mark in self._begins:
            self._aside.append(mark)
        elif self._section is not None:
            self._leave(mark, events)
        elif not self._called:
            self._say(mark, events)

    def _leave(self, mark: str, events: list[Event]) -> None:
        """The end of a section: its mark, or none at the answer's end."""
        aside, section = "".join(self._aside), self._section
        self._section, self._aside = None, []
        if section == "said":
            self._say(aside + mark, events)
        elif aside.strip("".join(self._begins) + " \n\t\r"):
            self._say(aside if section == "called" else aside + mark, events)

    def _call(self, text: str, events: list[Event]) -> str:
        """To the end of the body; what is left of the text."""
        scan = self._scan
        place = None if scan is None else scan.find(text)
        if place is None:
            self._body.append(text)
            return ""
        self._body.append(text[:place])
        closed = text[place : place + 1]
        close = closed if closed in self._closes and closed else ""
        self._close(close, events, whole=True)
        return text[place + len(close) :]

    def _close(self, close: str, events: list[Event], *, whole: bool) -> None:
        body = "".join(self._body)
        calls = None
        if whole:
            calls = self._format.read(Body(body, self._marks, self._tools))
        self._scan, self._body = None, []
        if calls is not None:
            self._aside = []
            self._called = True
            self._section = self._section and "called"
            events.extend(calls)
        elif not whole and self._called and self._is_call(body):
            self._aside = []  # the answer was cut: what calls there are, are there
        elif body.strip() or close:
            if self._section == "opened":
                self._section = "said"
            self._say("".join(self._aside) + self._open + body + close, events)
            self._aside = []

    def _is_call(self, body: str) -> bool:
        """Whether a body that was cut began as a call does, and not as a word might."""
        begins = self._format.begins
        return (
            self._open in self._marks.by_id.values()
            or not begins
            or (body.lstrip()[:1] in begins)
        )

    def _say(self, marked: str, events: list[Event]) -> None:
        if marked:
            events.append(Text("content", self._marks.plain(marked)))
