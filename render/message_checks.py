"""Are messages and tools of a shape that vLLM 0.32 shows to a template?

Far fewer shapes are refused than its models describe: unknown roles and fields pass.
"""

from collections.abc import Mapping

from render.body import Json
from render.messages import is_media
from render.refused import RenderRefused, missing, not_valid


def check_messages(body: Mapping[str, object]) -> None:
    """Messages are a list of objects with a role and content a model could be shown."""
    if "messages" not in body:
        raise missing("body.messages", body)
    messages = body["messages"]
    if not isinstance(messages, list):
        message = "Input should be a valid list"
        raise not_valid("list_type", "body.messages", message, messages)
    for index, message in enumerate(messages):
        _message(message, f"body.messages.{index}")


def media_part(messages: object) -> str | None:
    """Where the first part that is not text lies, and what it is: for a message."""
    for index, message in enumerate(messages if isinstance(messages, list) else []):
        content = message.get("content") if isinstance(message, dict) else None
        for place, part in enumerate(content if isinstance(content, list) else []):
            if is_media(part):
                kind = part.get("type") or ", ".join(map(str, part))
                return f"messages.{index}.content.{place} is {kind}"
    return None


def check_tools(tools: object) -> None:
    """Tools are functions with a name; raises RenderRefused."""
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        where = f"body.tools.{index}"
        if not isinstance(tool, dict):
            message = "Input should be a valid dictionary"
            raise not_valid("model_attributes_type", where, message, tool)
        kind = tool.get("type", "function")
        if kind != "function":
            message = "Input should be 'function'"
            raise not_valid("literal_error", f"{where}.type", message, kind)
        function = tool.get("function")
        if not isinstance(function, dict):
            raise missing(f"{where}.function", tool)
        if not isinstance(function.get("name"), str):
            raise missing(f"{where}.function.name", function)


def check_tool_parser(fields: Json) -> None:
    """For a server without a tool-call parser: no tools that may be called."""
    choice = fields["tool_choice"]
    if not fields["tools"] or choice == "none":
        return
    if choice in (None, "auto"):
        raise RenderRefused(
            '"auto" tool choice requires --enable-auto-tool-choice and '
            "--tool-call-parser to be set"
        )
    name = named_tool(choice) or choice
    raise RenderRefused(f'tool_choice="{name}" requires --tool-call-parser to be set')


def named_tool(tool_choice: object) -> str | None:
    """The function a `tool_choice` names, if it names one."""
    if not isinstance(tool_choice, dict):
        return None
    function = tool_choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _message(message: object, where: str) -> None:
    # The engine tries its kinds of messages in turn and names the first.
    kind = f"{where}.ChatCompletionDeveloperMessageParam"
    if not isinstance(message, dict):
        words = "Input should be a valid dictionary"
        raise not_valid("dict_type", kind, words, message)
    role = message.get("role")
    if not isinstance(role, str):
        raise missing(f"{kind}.role", message)
    content = message.get("content", "")
    empty = content is None and role in ("assistant", "function")
    if not empty and not isinstance(content, str | list):
        words = "Input should be a valid string"
        raise not_valid("string_type", f"{kind}.content", words, content)
