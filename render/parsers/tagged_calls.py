"""Calls whose arguments are written between tags, and typed by the tool's schema."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from render.parsers.calls import Body, Read
from render.parsers.events import Call
from render.parsers.json_calls import named_call
from render.parsers.json_text import NotJson, dump, load

TEXTS = frozenset({"string", "any"})
"""Types that say that a value is text."""
NAME = re.compile(r"[^\s<>\"'{}\[\]\ud800-\udfff]+")


def _call(name: str, arguments: dict[str, Any]) -> list[Call] | None:
    try:
        return [Call(name, dump(arguments))]
    except NotJson:
        return None


def read_parameters(
    opening: str,
    closing: str,
    ends: tuple[str, ...],
    *,
    inline: bool = False,
    guess: bool = False,
    unwrapped: Callable[[str], str] = str,
) -> Read:
    """`NAME>` and parameters `opening KEY>VALUE closing` (Qwen3-Coder, MiniMax).

    A value's own line breaks are kept, one at each side is markup; with `inline`, none
    is. `ends` may close the whole. A value is what is `unwrapped` of its text; without
    a schema it is a `guess` whether it is JSON.
    """

    def read(body: Body) -> list[Call] | None:
        opens, closes = body.mark(opening), body.mark(closing)
        text = body.text.rstrip()
        for end in ends:
            text = text.removesuffix(body.marks.of(end)).rstrip()
        head, _, rest = text.partition(">")
        name = head.strip().strip("\"'/")
        if not NAME.fullmatch(name):
            return None
        begin = re.compile(rf"(?:\A\s*|(?<=\n)[ \t]*|{closes}\s*){opens}")
        places = [match.end() for match in begin.finditer(rest)]
        if not places:
            return _call(name, {}) if not rest.strip() else None
        if rest[: places[0]].strip() != body.marks.of(opening):
            return None
        arguments: dict[str, Any] = {}
        for start, stop in _spans(places):
            written = rest[start:stop]
            key, found, value = written.partition(">")
            if not found:
                return None
            value = body.marks.plain(_value(value, body.marks.of(closing), inline))
            key = key.strip().strip("\"'")
            value = unwrapped(value)
            arguments[key] = body.tools.argument(name, key, value, guess=guess)
        return _call(name, arguments)

    return read


def _spans(places: Sequence[int]) -> list[tuple[int, int | None]]:
    """From after each opening tag (one character) to before the next."""
    ends: list[int | None] = [place - 1 for place in places[1:]]
    return list(zip(places, [*ends, None], strict=False))


def _value(written: str, closing: str, inline: bool) -> str:
    """A value without its closing tag and the line breaks of the markup."""
    ended = written.rstrip()
    if ended.endswith(closing):
        written = ended[:-1]
    if inline:
        return written
    return written.removeprefix("\n").removesuffix("\n")


def read_pairs(
    key: tuple[str, str],
    value: tuple[str, str],
    separator: str | None = None,
    kind: tuple[str, str] | None = None,
) -> Read:
    """`NAME` and pairs of a key and a value in tags (GLM).

    The last value may be without its closing tag. A `separator` may stand after the
    name, a type in tags (`kind`) after each key: it
    says whether a value without a schema is text.
    """

    def read(body: Body) -> list[Call] | None:
        key_open, key_close, value_open, value_close = map(body.mark, (*key, *value))
        typed = ""
        if kind is not None:
            type_open, type_close = map(body.mark, kind)
            typed = rf"(?:\s*{type_open}([^{type_close}]*){type_close})?"
        pair = re.compile(
            rf"\s*{key_open}([^{key_close}]*){key_close}{typed or '()'}"
            rf"\s*{value_open}([^{value_close}]*)(?:{value_close}|\Z)"
        )
        name, place = _leading_name(body.text)
        if name is None:
            return None
        if separator and body.text.startswith(body.marks.of(separator), place):
            place += 1
        arguments: dict[str, Any] = {}
        while match := pair.match(body.text, place):
            name_, said, text = (body.marks.plain(p or "") for p in match.groups())
            guess = said.strip().lower() not in TEXTS
            argument = body.tools.argument(name, name_.strip(), text, guess=guess)
            arguments[name_.strip()] = argument
            place = match.end()
        return _call(name, arguments) if not body.text[place:].strip() else None

    return read


def _leading_name(text: str) -> tuple[str | None, int]:
    start = len(text) - len(text.lstrip())
    found = NAME.match(text, start)
    return (None, 0) if found is None else (found.group(), found.end())


def read_deepseek(separator: str) -> Read:
    """`[function SEP]NAME` and JSON, in a fence or not (DeepSeek V3 and V3.1)."""

    def read(body: Body) -> list[Call] | None:
        parts = body.text.split(body.marks.of(separator), 1)
        if len(parts) != 2:
            return None
        head, rest = (body.marks.plain(part) for part in parts)
        if head.strip() == "function" and not rest.lstrip().startswith("{"):
            head, _, rest = rest.partition("\n")
        return named_call(head, rest)

    return read


def read_dsml(opening: str, closing: str, end: str, short: str) -> Read:
    """`NAME">` and parameters that say whether they are strings (DeepSeek V3.2)."""
    head = re.compile(r'\s+name="([^"]*)"(?:\s+string="([^"]*)")?\s*>')

    def read(body: Body) -> list[Call] | None:
        text = body.text.rstrip()
        if text.endswith(body.marks.of(short)):
            name = text[:-1].strip()
            return _call(name, {}) if NAME.fullmatch(name) else None
        name, found, rest = text.removesuffix(body.marks.of(end)).partition('">')
        if not found or not NAME.fullmatch(name):
            return None
        arguments: dict[str, Any] = {}
        for written in _parameters(body, opening, closing, rest):
            match = head.match(written)
            if match is None:
                return None
            value = body.marks.plain(written[match.end() :])
            arguments[match[1]] = value if match[2] == "true" else _loaded(value)
        return _call(name, _unwrapped(body, name, arguments))

    return read


def _parameters(body: Body, opening: str, closing: str, rest: str) -> Iterator[str]:
    """What stands between the tags of each parameter; "" for what is in none."""
    opens, closes = body.mark(opening), body.mark(closing)
    begin = re.compile(rf'(?:\A\s*|{closes}\s*|(?<=\n)[ \t]*){opens}(?=\s+name=")')
    places = [match.end() for match in begin.finditer(rest)]
    first = rest[: places[0] - 1] if places else rest
    if first.strip():
        yield ""
    for start, stop in _spans(places):
        written = rest[start:stop]
        yield written.rstrip().removesuffix(body.marks.of(closing))


def _loaded(text: str) -> Any:
    try:
        return load(text)
    except NotJson:
        return text


def _unwrapped(body: Body, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that some models put into one more object."""
    if len(arguments) == 1:
        ((key, inner),) = arguments.items()
        if key in ("arguments", "input") and not body.tools.has_argument(name, key):
            value = _loaded(inner) if isinstance(inner, str) else inner
            if isinstance(value, dict):
                return value
    return arguments


def read_kimi(separator: str) -> Read:
    """`functions.NAME:INDEX SEP {...}` (Kimi K2)."""

    def read(body: Body) -> list[Call] | None:
        head, found, rest = body.text.partition(body.marks.of(separator))
        name = body.marks.plain(head).strip().removeprefix("functions.")
        name = re.sub(r":\d+\Z", "", name)
        return named_call(name, body.marks.plain(rest)) if found else None

    return read


def unescaped(text: str) -> str:
    """An attribute without XML's escapes."""
    return html.unescape(text)
