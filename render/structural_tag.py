"""Structural tags: what an answer with tool calls in it must look like.

Written as vLLM 0.32 writes them for its `hermes` parser, xgrammar's defaults included.
"""

import json
from collections.abc import Sequence
from typing import Literal

from render.body import Json


def hermes_tag(
    tools: Sequence[Json], choice: Literal["auto", "required"], single: bool
) -> Json:
    """`<tool_call>` around a JSON object, with a line break inside or without.

    With "auto" text may be around the calls; `single` allows for one call only.
    """
    tags = [
        {
            "type": "tag",
            "begin": f'<tool_call>{gap}{{"name": "{tool["name"]}", "arguments": ',
            "content": _json(_strict_schema(tool)),
            "end": f"}}{gap}</tool_call>",
        }
        for tool in tools
        for gap in ("\n", "")
    ]
    format_: Json
    if choice == "auto":
        format_ = {
            "type": "triggered_tags",
            "triggers": ["<tool_call>"],
            "tags": tags,
            "at_least_one": False,
            "stop_after_first": single,
            "excludes": [],
        }
    else:
        format_ = {
            "type": "tags_with_separator",
            "tags": tags,
            "separator": "",
            "at_least_one": True,
            "stop_after_first": single,
        }
    return {"type": "structural_tag", "format": format_}


def output_format(constraint: Json) -> Json | None:
    """Another constraint as a part of a tag; None for one that cannot be a part."""
    if constraint["json_object"]:
        return _json({"type": "object"})
    schema = constraint["json"]
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError):
            return None
    if schema is not None:
        return _json(schema)
    if constraint["regex"] is not None:
        return {"type": "regex", "pattern": constraint["regex"]}
    if constraint["choice"] is not None:
        texts = [{"type": "const_string", "value": c} for c in constraint["choice"]]
        return {"type": "or", "elements": texts}
    if constraint["grammar"] is not None:
        return {"type": "grammar", "grammar": constraint["grammar"]}
    return None


def _json(schema: object) -> Json:
    return {
        "type": "json_schema",
        "json_schema": schema,
        "style": "json",
        "any_order": False,
        "max_whitespace_cnt": None,
        "excludes": [],
    }


def _strict_schema(tool: Json) -> object:
    """Only a strict tool's parameters bind the answer; True is any JSON."""
    parameters = tool.get("parameters")
    return parameters if tool.get("strict") and parameters is not None else True
