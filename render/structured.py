"""`structured_outputs` of a rendered request: what the answer must look like.

It comes from the body's own `structured_outputs`, its `response_format`, or from a tool
choice that demands a call.
"""

import json
from collections.abc import Mapping, Sequence

from render.body import Json
from render.message_checks import named_tool
from render.refused import RenderRefused, bad_value, not_valid
from render.responses import function_tools
from render.structural_tag import hermes_tag, output_format

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
TYPES: tuple[tuple[str, tuple[type, ...], str, str], ...] = (
    ("json", (str, dict), "string_type", "string"),
    ("regex", (str,), "string_type", "string"),
    ("choice", (list,), "list_type", "list"),
    ("grammar", (str,), "string_type", "string"),
    ("structural_tag", (str,), "string_type", "string"),
)
DEFAULTS: Json = {
    "json": None,
    "regex": None,
    "choice": None,
    "grammar": None,
    "json_object": None,
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
    "whitespace_pattern": None,
    "structural_tag": None,
    "_backend": None,
    "_backend_was_auto": False,
}


def chat_constraint(fields: Json, tool_call_parser: str | None) -> Json | None:
    """The constraint of a chat body's fields; raises RenderRefused."""
    given = constraint(fields["structured_outputs"], fields["response_format"])
    tools = [tool["function"] for tool in fields["tools"] or []]
    choice = fields["tool_choice"]
    return _with_tools(given, tools, choice, fields, tool_call_parser)


def responses_constraint(fields: Json, tool_call_parser: str | None) -> Json | None:
    """The constraint of a responses body's fields: the format of its text."""
    format_ = (fields["text"] or {}).get("format")
    if format_ is not None and fields["structured_outputs"] is not None:
        words = "Cannot specify both structured_outputs and text.format"
        raise bad_value(words, "structured_outputs")
    if not isinstance(format_, dict):
        format_ = None
    elif format_.get("type") == "json_schema":
        schema = format_.get("schema")
        format_ = {"type": "json_schema", "json_schema": {"schema": schema}}
    given = constraint(fields["structured_outputs"], format_)
    tools = [tool["function"] for tool in function_tools(list(fields["tools"]))]
    if tool_call_parser is None:
        return given
    choice = fields["tool_choice"]
    if isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
        choice = {"function": {"name": choice.get("name")}}
    return _with_tools(given, tools, choice, fields, tool_call_parser)


def _with_tools(
    given: Json | None,
    tools: Sequence[Json],
    choice: object,
    fields: Json,
    tool_call_parser: str | None,
) -> Json | None:
    """What is given, or the call that the choice of a tool demands."""
    name = named_tool(choice)
    if not tools or (name is None and choice not in ("auto", "required")):
        return given
    tools = [tool for tool in tools if name in (None, tool["name"])]
    if not tools:
        raise RenderRefused("The tool that is chosen is not among the tools.")
    if name is not None and len(tools) != 1 and tool_call_parser == "hermes":
        raise RenderRefused("Forced tool choice must resolve to exactly one tool.")
    if choice != "auto":
        return {**DEFAULTS, **_tool_call(tools, name, fields, tool_call_parser)}
    one_call = fields["parallel_tool_calls"] is False
    strict = any(tool.get("strict") for tool in tools)
    if tool_call_parser != "hermes" or not (strict or (one_call and given is None)):
        return given
    tag = hermes_tag(tools, "auto", one_call)
    if given is not None:
        calls = hermes_tag(tools, "required", one_call)
        other = output_format(given)
        if other is None:
            return given
        tag = {
            "type": "structural_tag",
            "format": {"type": "or", "elements": [calls["format"], other]},
        }
    return {**DEFAULTS, "structural_tag": json.dumps(tag)}


def _check_types(given: Json) -> None:
    for name, types, kind, words in TYPES:
        value = given.get(name)
        if value is not None and not isinstance(value, types):
            where = f"body.structured_outputs.{name}"
            raise not_valid(kind, where, f"Input should be a valid {words}", value)


def constraint(given: Json | None, response_format: Json | None) -> Json | None:
    """The constraint of the two fields; the format wins over its own kind."""
    if given is None and response_format is None:
        return None
    _check_types(given or {})
    merged = {**DEFAULTS, **{k: v for k, v in (given or {}).items() if k in DEFAULTS}}
    kind = (response_format or {}).get("type")
    if response_format is not None and kind == "json_schema":
        schema = response_format.get("json_schema", {})
        merged["json"] = schema.get("schema", schema.get("json_schema"))
    elif kind == "json_object":
        merged["json_object"] = True
    elif kind == "structural_tag":
        merged["structural_tag"] = json.dumps(response_format)
    kinds = sum(merged[name] is not None for name in CONSTRAINTS)
    if kinds == 0 and given is None and kind != "json_schema":
        return None
    if kinds != 1:
        number = "none are" if kinds == 0 else "multiple are"
        raise RenderRefused(
            f"You must use one kind of structured outputs constraint but {number} "
            f"specified: {given}"[:400]
        )
    return merged


def _tool_call(
    tools: Sequence[Json], name: str | None, fields: Json, tool_call_parser: str | None
) -> Mapping[str, object]:
    if tool_call_parser == "hermes":
        single = name is not None or fields["parallel_tool_calls"] is False
        return {"structural_tag": json.dumps(hermes_tag(tools, "required", single))}
    if name is not None:
        return {"json": tools[0].get("parameters") or {"type": "object"}}
    return {"json": _any_calls(tools)}


def _any_calls(tools: Sequence[Json]) -> Json:
    """A list of calls, of any of the tools."""
    calls = [
        {
            "properties": {
                "name": {"type": "string", "enum": [tool["name"]]},
                "parameters": tool.get("parameters")
                or {"type": "object", "properties": {}},
            },
            "required": ["name", "parameters"],
        }
        for tool in tools
    ]
    return {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "anyOf": calls},
    }
