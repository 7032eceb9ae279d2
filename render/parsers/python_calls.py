"""Calls that are Python: `[f(x=1), g()]`. Read, never run."""

import ast
from typing import Any

from render.parsers.calls import Body
from render.parsers.events import Call
from render.parsers.json_text import NotJson, dump

LITERALS = {"true": True, "false": False, "null": None}
LONGEST = 1 << 18  # characters; reading one takes microseconds


class NotCalls(ValueError):
    """A text is no list of calls."""


def read_python(body: Body) -> list[Call] | None:
    """The calls of a list, of one call, or of calls in lines or after each other."""
    return python_calls(body.marks.plain(body.text).strip())


def python_calls(text: str) -> list[Call] | None:
    """The calls of a Python text; None if it is anything else."""
    if len(text) > LONGEST:
        return None
    try:
        tree = ast.parse(text, mode="exec")
        calls = [_call(node) for statement in tree.body for node in _nodes(statement)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return calls or None


def _nodes(statement: ast.stmt) -> list[ast.expr]:
    if not isinstance(statement, ast.Expr):
        raise NotCalls("a statement")
    value = statement.value
    return value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or node.args:
        raise NotCalls("no call with named arguments")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise NotCalls("arguments without a name, or twice")
        arguments[keyword.arg] = _value(keyword.value)
    try:
        return Call(_name(node.func), dump(arguments))
    except NotJson as error:
        raise NotCalls(str(error)) from error


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    raise NotCalls("no name")


def _value(node: ast.expr) -> Any:
    """The value of a literal; JSON's own names for some are taken too."""
    if isinstance(node, ast.Name) and node.id in LITERALS:
        return LITERALS[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {_key(k): _value(v) for k, v in zip(node.keys, node.values, strict=True)}
    # Most are constants; `literal_eval` would take ten times as long for each.
    value: object
    value = node.value if isinstance(node, ast.Constant) else ast.literal_eval(node)
    if isinstance(value, str | int | float | None):
        return value
    raise NotCalls("no value that JSON has")


def _key(node: ast.expr | None) -> str:
    value = None if node is None else ast.literal_eval(node)
    if not isinstance(value, str):
        raise NotCalls("a key that is no text")
    return value
