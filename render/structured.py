"""`structured_outputs` of a rendered request: what the answer must look like.

It comes from the body's own `structured_outputs`, its `response_format`, or from a tool
choice that demands a call.
"""

import json
from collections.abc import Mapping, Sequence

from render.body import Json
from render.message_checks import named_tool
from render.refused import RenderRefused

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
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
    choice = fields["tool_choice"]
    name = named_tool(choice)
    if fields["tools"] and (choice == "required" or name is not None):
        tools = [
            tool["function"]
            for tool in fields["tools"]
            if name is None or tool["function"]["name"] == name
        ]
        return {**DEFAULTS, **_tool_call(tools, name, tool_call_parser)}
    return constraint(fields["structured_outputs"], fields["response_format"])


def responses_constraint(fields: Json) -> Json | None:
    """The constraint of a responses body's fields: the format of its text."""
    format_ = (fields["text"] or {}).get("format")
    if not isinstance(format_, dict):
        format_ = None
    elif format_.get("type") == "json_schema":
        schema = format_.get("schema")
        format_ = {"type": "json_schema", "json_schema": {"schema": schema}}
    return constraint(fields["structured_outputs"], format_)


def constraint(given: Json | None, response_format: Json | None) -> Json | None:
    """The constraint of the two fields; the format wins over its own kind."""
    if given is None and response_format is None:
        return None
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
    if kinds == 0 and given is None:
        return None
    if kinds != 1:
        number = "none are" if kinds == 0 else "multiple are"
        raise RenderRefused(
            f"You must use one kind of structured outputs constraint but {number} "
            f"specified: {given}"[:400]
        )
    return merged


def _tool_call(
    tools: Sequence[Json], name: str | None, tool_call_parser: str | None
) -> Mapping[str, object]:
    if tool_call_parser == "hermes":
        return {"structural_tag": json.dumps(_hermes(tools, only_one=name is not None))}
    if name is not None:
        return {"json": tools[0].get("parameters") or {"type": "object"}}
    return {"json": _any_calls(tools)}


def _hermes(tools: Sequence[Json], *, only_one: bool) -> Json:
    """`<tool_call>` around a JSON object, with a line break inside or without."""
    tags = [
        {
            "type": "tag",
            "begin": f'<tool_call>{gap}{{"name": "{tool["name"]}", "arguments": ',
            "content": {
                "type": "json_schema",
                "json_schema": _strict_schema(tool),
                "style": "json",
                "any_order": False,
                "max_whitespace_cnt": None,
                "excludes": [],
            },
            "end": f"}}{gap}</tool_call>",
        }
        for tool in tools
        for gap in ("\n", "")
    ]
    format_ = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "",
        "at_least_one": True,
        "stop_after_first": only_one,
    }
    return {"type": "structural_tag", "format": format_}


def _strict_schema(tool: Json) -> object:
    """Only a strict tool's parameters bind the answer; True is any JSON."""
    return tool.get("parameters", True) if tool.get("strict") else True


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
