"""Gemma's own notation: `call:NAME{key:value}`, with a token in place of quotes."""

import re
from typing import Any

from render.parsers.calls import Body, Read
from render.parsers.events import Call
from render.parsers.json_text import NotJson, dump, load

HEAD = re.compile(r"\s*call:\s*([^\s{}\ud800-\udfff]+)\s*\{")
DEEPEST = 100


class NotNotation(ValueError):
    """A text is not in this notation."""


def read_gemma(quote: str) -> Read:
    """A body in the notation; `quote` is around texts."""

    def read(body: Body) -> list[Call] | None:
        head = HEAD.match(body.text)
        if head is None:
            return None
        reader = _Reader(body, body.marks.of(quote), head.end())
        try:
            arguments = reader.members("}")
            return [Call(head[1], dump(arguments))] if reader.at_end() else None
        except (NotNotation, NotJson):
            return None

    return read


class _Reader:
    """Reads values one after the other."""

    def __init__(self, body: Body, quote: str, place: int) -> None:
        self._text = body.text
        self._plain = body.marks.plain
        self._quote = quote
        self._place = place
        self._depth = 0
        self._bare = re.compile(rf"[^,\]}}{{\[{quote}]*")
        self._key = re.compile(rf"[^:,{{}}\[\]{quote}]+")

    def at_end(self) -> bool:
        """Whether nothing but space is left."""
        return not self._text[self._place :].strip()

    def members(self, close: str) -> dict[str, Any]:
        """`key:value` pairs up to the closing brace."""
        members: dict[str, Any] = {}
        while not self._take(close):
            key = self._string() if self._next() == self._quote else self._bare_key()
            if not self._take(":"):
                raise NotNotation("no value")
            members[key] = self._value()
            if not self._take(",") and self._next() != close:
                raise NotNotation("members run together")
        return members

    def _items(self) -> list[Any]:
        items: list[Any] = []
        while not self._take("]"):
            items.append(self._value())
            if not self._take(",") and self._next() != "]":
                raise NotNotation("items run together")
        return items

    def _value(self) -> Any:
        if self._next() == self._quote:
            return self._string()
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotNotation("too deep")
        try:
            if self._take("{"):
                return self.members("}")
            return self._items() if self._take("[") else self._bare_value()
        finally:
            self._depth -= 1

    def _string(self) -> str:
        end = self._text.find(self._quote, self._place + 1)
        if end < 0:
            raise NotNotation("a text without an end")
        text = self._text[self._place + 1 : end]
        self._place = end + 1
        return self._plain(text)

    def _bare_key(self) -> str:
        found = self._key.match(self._text, self._place)
        if found is None:
            raise NotNotation("no key")
        self._place = found.end()
        return self._plain(found.group()).strip()

    def _bare_value(self) -> Any:
        found = self._bare.match(self._text, self._place)
        text = self._plain(found.group()).strip() if found is not None else ""
        if found is None or not text:
            raise NotNotation("no value")
        self._place = found.end()
        try:
            return load(text)
        except NotJson:
            return text

    def _next(self) -> str:
        while self._text[self._place : self._place + 1].isspace():
            self._place += 1
        return self._text[self._place : self._place + 1]

    def _take(self, character: str) -> bool:
        if self._next() != character:
            return False
        self._place += 1
        return True
