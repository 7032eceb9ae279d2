"""Are messages and tools of a shape that vLLM 0.32 shows to a template?

Far fewer shapes are refused than its models describe: unknown roles and fields pass.
"""

from collections.abc import Mapping, Sequence

from render.body import Json
from render.fields import Field, read_fields
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
        read_fields(function, FUNCTION, f"{where}.function")


def check_tool_parser(fields: Json) -> None:
    """For a server without a tool-call parser: no tools that may be called."""
    choice = fields["tool_choice"]
    if not fields["tools"] or choice in (None, "none"):
        return
    if choice == "auto":
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
    empty = content is None and (role == "assistant" or _is_function(message))
    if not empty and not isinstance(content, str | list):
        words = "Input should be a valid string"
        raise not_valid("string_type", f"{kind}.content", words, content)
    names = ("tool_call_id",) if role == "tool" else ("name", "tool_call_id")
    for name in names:  # a tool's own name is not looked at
        value = message.get(name, "")
        if not isinstance(value, str) and (value is not None or name == "name"):
            words = "Input should be a valid string"
            raise not_valid("string_type", f"{kind}.{name}", words, value)


FUNCTION = {
    "description": Field("text"),
    "parameters": Field("object"),
    "strict": Field("flag"),
}
ROLES = ("developer", "system", "user", "assistant", "tool")
# They make a message one of vLLM's own, whose parts may be of more kinds.
OWN_FIELDS = frozenset(
    ("reasoning", "reasoning_content", "tool_calls", "tools", "task")
)


def check_known(messages: Sequence[Json]) -> None:
    """What vLLM asks of messages beyond their shape; raises RenderRefused.

    Calls of an assistant have an id, and arguments that are a text. Of the parts of a
    plain message one at least is of the chat API, and whole.
    """
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if parts and _is_plain(message) and not any(map(_is_known_part, parts)):
            raise RenderRefused("Content parts should be of type 'text'")
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        for index, call in enumerate(calls if isinstance(calls, list) else []):
            _check_call(call, index)


def _is_plain(message: Json) -> bool:
    role = message["role"]
    if role == "tool" and "name" in message:
        return False
    if role == "tool":
        own = isinstance(message.get("tool_call_id"), str)
    else:
        own = "tool_call_id" not in message
    return own and role in ROLES and OWN_FIELDS.isdisjoint(message)


def _is_known_part(part: object) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind in ("input_text", "output_text"):
        return False
    return kind not in ("text", "thinking") or isinstance(part.get(kind), str)


def _is_function(message: Json) -> bool:
    return message["role"] == "function" and isinstance(message.get("name"), str)


def _check_call(call: object, index: int) -> None:
    kind = f"body.{index}.ChatCompletionMessageFunctionToolCallParam"
    if not isinstance(call, dict):
        words = "Input should be a valid dictionary"
        raise not_valid("dict_type", kind, words, call)
    for name in ("id", "type"):
        _check_text(call, name, kind)
    if call["type"] != "function":
        return  # refused by the renderer
    function = call.get("function")
    if not isinstance(function, dict):
        raise missing(f"{kind}.function", call)
    for name in ("arguments", "name"):
        _check_text(function, name, f"{kind}.function")


def _check_text(value: Json, name: str, where: str) -> None:
    if name not in value:
        raise missing(f"{where}.{name}", value)
    if not isinstance(value[name], str):
        words = "Input should be a valid string"
        raise not_valid("string_type", f"{where}.{name}", words, value[name])
