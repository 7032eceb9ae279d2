"""Arguments that stand as text in the answer: typed as the tool's schema says."""

from collections.abc import Mapping, Sequence
from typing import Any

from render.body import Json
from render.parsers.json_text import NotJson, load

Properties = Mapping[str, Any]
LITERALS = {"true": True, "false": False, "null": None, "none": None}
SIMPLE = ("string", "integer", "number", "boolean", "object", "array", "null")


class Tools:
    """What is known of a request's tools: the schemas of their parameters by name."""

    def __init__(self, tools: object = None) -> None:
        self._properties: dict[str, Properties] = {}
        for tool in tools if isinstance(tools, Sequence) else ():
            function = tool.get("function", tool) if isinstance(tool, dict) else None
            if not isinstance(function, dict):
                continue
            name, schema = function.get("name"), function.get("parameters")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            if isinstance(name, str):
                known = properties if isinstance(properties, dict) else {}
                self._properties[name] = known

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __len__(self) -> int:
        return len(self._properties)

    def has_argument(self, tool: str, name: str) -> bool:
        """Whether a tool's schema has a parameter of that name; True if it has none."""
        properties = self._properties.get(tool)
        return not properties or name in properties

    def argument(self, tool: str, name: str, text: str, *, guess: bool = False) -> Any:
        """The value of a written argument; the text itself where it is no other.

        `guess` is whether one without a schema is JSON if it can be.
        """
        return typed_value(self.schema(tool, name), text, guess=guess)

    def schema(self, tool: str, name: str) -> object:
        """The schema of a tool's parameter, None where there is none."""
        return self._properties.get(tool, {}).get(name)


def typed_value(schema: object, text: str, *, guess: bool = False) -> Any:
    """The value of a text by its schema; the text itself where it is no other."""
    types = _types(schema)
    if not types:
        return _json(text) if guess else text
    if "string" in types and types <= {"string", "null"}:
        return None if "null" in types and _literal(text) == "null" else text
    return _typed(text, types)


def _types(schema: object) -> set[str]:
    """The types a schema allows; none if it does not say."""
    if not isinstance(schema, dict):
        return set()
    given = schema.get("type")
    types = {given} if isinstance(given, str) else set()
    if isinstance(given, list):
        types |= {one for one in given if isinstance(one, str)}
    for key in ("anyOf", "oneOf", "allOf"):
        inner = schema.get(key)
        for one in inner if isinstance(inner, list) else ():
            types |= _types(one)
    enum = schema.get("enum")
    if not types and isinstance(enum, list) and all(isinstance(e, str) for e in enum):
        types = {"string"}
    if not types and "properties" in schema:
        types = {"object"}
    return types & {*SIMPLE}


def _typed(text: str, types: set[str]) -> Any:
    literal = _literal(text)
    if literal in LITERALS and (
        ("boolean" in types and literal in ("true", "false"))
        or ("null" in types and literal in ("null", "none"))
    ):
        return LITERALS[literal]
    try:
        value = load(text)
    except NotJson:
        return text
    if _is(value, types) or "string" not in types:
        return value
    return text


def _is(value: object, types: set[str]) -> bool:
    kinds: dict[type, set[str]] = {
        bool: {"boolean"},
        int: {"integer", "number"},
        float: {"number"},
        dict: {"object"},
        list: {"array"},
        str: {"string"},
    }
    return bool(kinds.get(type(value), {"null"}) & types)


def _json(text: str) -> Any:
    try:
        return load(text)
    except NotJson:
        return text


def _literal(text: str) -> str:
    return text.strip().lower()


def arguments_of(value: object) -> Json | None:
    """Arguments as an object: also where they are its JSON text; None: they are not."""
    if isinstance(value, str):
        value = _json(value)
    return value if isinstance(value, dict) else None
