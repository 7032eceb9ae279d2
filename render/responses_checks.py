"""What vLLM 0.32 refuses in a responses body before it renders.

Its items are read far more strictly than the messages of a chat; only what could reach
the prompt is checked here.
"""

from render.body import Json
from render.checks import check_cache_salt
from render.refused import bad_value, missing, not_valid

INPUT_PARTS = ("input_text", "output_text", "refusal", "input_image", "input_file")


def check_responses(body: Json) -> None:
    """All checks of a responses body; raises RenderRefused."""
    if body.get("background") and body.get("store") is False:
        raise bad_value(
            "background can only be used when `store` is true", "background"
        )
    if body.get("prompt") is not None:
        raise bad_value("prompt template is not supported", "prompt")
    check_cache_salt(body)
    _responses_tool_choice(body)
    items = body.get("input")
    for index, item in enumerate(items if isinstance(items, list) else []):
        _input_item(item, f"body.input.{index}")
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in ("function", "custom") and not isinstance(tool.get("name"), str):
            raise missing(f"body.tools.{index}.FunctionTool.name", tool)
    if "input" not in body:
        raise missing("body.input", {**body, "request_id": None})
    if not isinstance(body["input"], str | list):
        message = "Input should be a valid list"
        raise not_valid("list_type", "body.input", message, body["input"])


def _input_item(item: object, where: str) -> None:
    if not isinstance(item, dict):
        message = "Input should be a valid dictionary"
        raise not_valid("dict_type", where, message, item)
    is_output = item.get("type") == "function_call_output"
    name = "output" if is_output else "content"
    content = item.get(name)
    wanted = is_output or ("role" in item and name in item)
    if wanted and not isinstance(content, str | list):
        message = "Input should be a valid string"
        raise not_valid("string_type", f"{where}.{name}", message, content)
    for index, part in enumerate(content if isinstance(content, list) else []):
        kind = part.get("type") if isinstance(part, dict) else None
        if "role" in item and kind not in INPUT_PARTS:
            message = "Input should be 'input_text'"
            place = f"{where}.{name}.{index}.type"
            raise not_valid("literal_error", place, message, kind)


def _is_among(name: object, tools: object) -> bool:
    """Whether a tool has the name; those in a namespace have another one."""
    known = (
        [tool for tool in tools if isinstance(tool, dict)]
        if isinstance(tools, list)
        else []
    )
    names = [tool.get("name") for tool in known]
    return bool(name) and (
        name in names or any(tool.get("type") == "namespace" for tool in known)
    )


def _responses_tool_choice(body: Json) -> None:
    choice = body.get("tool_choice", "auto")
    kind = choice.get("type") if isinstance(choice, dict) else None
    named = kind in ("function", "custom")
    if isinstance(choice, dict) and named and body.get("tools"):
        named = not _is_among(choice.get("name"), body["tools"])
    elif choice == "required" and not body.get("tools"):
        raise bad_value(
            "Tool choice 'required' must be specified with 'tools' parameter.",
            "tool_choice",
        )
    if named:
        raise bad_value(
            "Tool choice 'function' not found in 'tools' parameter.", "tool_choice"
        )
    known = choice in ("auto", "none", "required") if kind is None else True
    if not known or (isinstance(choice, dict) and not isinstance(kind, str)):
        words = "Input should be 'none', 'auto' or 'required'"
        raise not_valid("literal_error", "body.tool_choice", words, choice)
