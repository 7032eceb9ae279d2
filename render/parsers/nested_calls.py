"""Calls whose arguments are elements named after them, one in the other (MiniMax M3).

Every tag stands behind the same marker, so that no value has to be escaped.
"""

from typing import Any

from render.parsers.calls import Body, CallFormat
from render.parsers.events import Call
from render.parsers.json_text import NotJson, dump
from render.parsers.marks import Marks
from render.parsers.scans import FollowedScan, Scan
from render.parsers.tagged_calls import NAME
from render.parsers.values import typed_value

MARKER = "]<]minimax[>["
SECTION = (f"{MARKER}<tool_call>", f"{MARKER}</tool_call>")
CALL = (f"{MARKER}<invoke name=", f"{MARKER}</invoke>")
NO_TAG = f"{MARKER}</>"
"""Ends the outermost elements: no element is called so."""
MIXED = "$text"
"""The name of text that stands beside elements."""
DEEPEST = 64
"""Elements in each other; what is deeper is no call."""

Element = str | list[tuple[str, "Element"]]
"""What an element holds: text, or named elements in their order."""


class _Malformed(ValueError):
    """A text that is not made of elements."""


def _elements(text: str, place: int, closer: str, depth: int) -> tuple[Element, int]:
    """What stands from a place to a closing tag, and the place after that."""
    if depth > DEEPEST:
        raise _Malformed
    said: list[str] = []
    inner: list[tuple[str, Element]] = []
    while True:
        found = text.find(MARKER, place)
        if found < 0:
            raise _Malformed
        said.append(text[place:found])
        if text.startswith(closer, found):
            break
        name, place = _opened(text, found)
        element, place = _elements(text, place, f"{MARKER}</{name}>", depth + 1)
        inner.append((name, element))
    rest = "".join(said)
    if inner and rest.strip():
        inner.append((MIXED, rest))
    return inner or rest, found + len(closer)


def _opened(text: str, place: int) -> tuple[str, int]:
    """The name of the tag that opens here, and the place after it."""
    start = place + len(MARKER)
    end = text.find(">", start)
    name = text[start + 1 : end]
    if (
        end < 0
        or text[start : start + 1] != "<"
        or name.startswith("/")
        or not name.strip()
    ):
        raise _Malformed
    return name, end + 1


def _container(schema: object) -> tuple[str, dict[str, Any]] | None:
    """The list or object that a schema allows, and its own schema."""
    if not isinstance(schema, dict):
        return None
    kinds = schema.get("type")
    if kinds is None:
        kinds = "array" if "items" in schema else "object" * ("properties" in schema)
    for kind in ("array", "object"):
        if kinds == kind or (isinstance(kinds, list) and kind in kinds):
            return kind, schema
    choices = [*_listed(schema, "anyOf"), *_listed(schema, "oneOf")]
    return next((found for one in choices if (found := _container(one))), None)


def _listed(schema: dict[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _converted(element: Element, schema: object) -> Any:
    """The value of an element by its schema."""
    container = _container(schema)
    if isinstance(element, str):
        if container is not None and not element.strip():
            return [] if container[0] == "array" else {}
        return typed_value(schema, element)
    if container is not None and container[0] == "array":
        return [_converted(one, container[1].get("items")) for _, one in element]
    properties = container[1].get("properties") if container is not None else None
    return _object(element, properties if isinstance(properties, dict) else {})


def _object(elements: list[tuple[str, Element]], schemas: dict[str, Any]) -> Any:
    """An object of elements; those of one name are a list."""
    values: dict[str, list[Any]] = {}
    for name, element in elements:
        value = _converted(element, schemas.get(name))
        values.setdefault(name, []).append(value)
    return {name: one if len(one) > 1 else one[0] for name, one in values.items()}


def _read(body: Body) -> list[Call] | None:
    text = body.text.rstrip().removesuffix(body.marks.of(CALL[1]))
    head, found, rest = body.marks.plain(text).partition(">")
    name = head.strip().strip("\"'")
    if not found or not NAME.fullmatch(name):
        return None
    try:
        written, _ = _elements(rest + NO_TAG, 0, NO_TAG, 0)
    except _Malformed:
        return None
    if isinstance(written, str):
        return [Call(name, "{}")] if not written.strip() else None
    if any(key == MIXED for key, _ in written):
        return None
    keys = {key for key, _ in written}
    schemas = {key: body.tools.schema(name, key) for key in keys}
    try:
        return [Call(name, dump(_object(written, schemas)))]
    except NotJson:
        return None


def _scan(marks: Marks) -> Scan:
    return FollowedScan(marks.of(CALL[1]), marks.of(SECTION[1]) + marks.of(CALL[0]))


MINIMAX_M3 = CallFormat(
    section=SECTION, opens=(CALL[0],), others=(CALL[1],), scan=_scan, read=_read
)
