"""Calls that are JSON: `{"name": ..., "arguments": {...}}`, or a list of these."""

import json
from typing import Any

from render.parsers.calls import Body
from render.parsers.events import Call
from render.parsers.json_text import NotJson, dump, load
from render.parsers.values import arguments_of

NAMES = ("name", "tool_name")
ARGUMENTS = ("arguments", "parameters")
FENCE = "```"


def call_of(value: object) -> Call | None:
    """The call that a JSON value is; None if it is not one."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):
        value = inner
    name = next((value[key] for key in NAMES if key in value), None)
    given = next((value[key] for key in ARGUMENTS if key in value), None)
    arguments = arguments_of(given)
    if not isinstance(name, str) or not name or arguments is None:
        return None
    try:
        return Call(name, dump(arguments))
    except NotJson:
        return None


def _unfenced(text: str) -> str:
    """A text without the fence that some models write around JSON."""
    inner = text.strip()
    if len(inner) < 2 * len(FENCE) or not inner.startswith(FENCE):
        return text
    if not inner.endswith(FENCE):
        return text
    return inner.removeprefix(FENCE).removesuffix(FENCE).removeprefix("json")


def calls_of(value: object) -> list[Call] | None:
    """The calls of a JSON value: one, or a list of nothing else."""
    calls = [call_of(one) for one in (value if isinstance(value, list) else [value])]
    found = [call for call in calls if call is not None]
    return found if found and len(found) == len(calls) else None


def read_json(body: Body) -> list[Call] | None:
    """A body that is one call, or a list of calls."""
    text = body.marks.plain(body.text)
    try:
        return calls_of(load(_unfenced(text)))
    except NotJson:
        return None


def read_sequence(body: Body) -> list[Call] | None:
    """Calls one after the other, with `;` or space between them."""
    rest = body.marks.plain(body.text).strip().removesuffix(";").strip()
    calls: list[Call] = []
    for value in _values(rest):
        found = None if value is NotJson else calls_of(value)
        if found is None:
            return None
        calls += found
    return calls or None


def _values(text: str) -> list[Any]:
    """The JSON values of a text; NotJson in place of what is none."""
    decoder = json.JSONDecoder(strict=False)
    values: list[Any] = []
    place = 0
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return [NotJson]
        values.append(value)
        place = len(text) - len(text[place:].lstrip(" \t\r\n;"))
    return values


def read_named(body: Body) -> list[Call] | None:
    """A list of `{name: arguments}` (Apertus)."""
    try:
        listed = load(body.marks.plain(body.text))
    except NotJson:
        return None
    if not isinstance(listed, list):
        return None
    named = [
        {"name": name, "arguments": arguments}
        for one in listed
        for name, arguments in (one.items() if isinstance(one, dict) else [("", None)])
    ]
    return calls_of(named) if named else None


def named_call(name: str, arguments: str) -> list[Call] | None:
    """The call of a name and the JSON text of its arguments."""
    try:
        value = load(_unfenced(arguments))
        if not isinstance(value, dict) or not name.strip():
            return None
        return [Call(name.strip(), dump(value))]
    except NotJson:
        return None
