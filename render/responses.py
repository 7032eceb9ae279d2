"""A self-contained `/v1/responses` body as the chat body it amounts to.

Self-contained is one that needs nothing stored on the worker: instructions, inline
history with function calls and their outputs, tools, reasoning options. The rules are
vLLM's (`entrypoints/openai/responses/`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from render.body import Json, mapping
from render.errors import Unrenderable

# Fields that stand for something only the worker has.
STORED = ("previous_response_id", "conversation", "prompt")
COPIED = ("chat_template_kwargs", "kv_transfer_params")
FUNCTION_FIELDS = ("name", "description", "parameters", "strict", "defer_loading")
# What a custom tool, which takes any text, is shown as.
FREE_TEXT: Json = {
    "type": "object",
    "properties": {
        "input": {
            "type": "string",
            "description": "The freeform text payload for this tool.",
        }
    },
    "required": ["input"],
    "additionalProperties": False,
}
UNFINISHED = ("in_progress", "incomplete")


def chat_body(body: Mapping[str, object]) -> Json:
    """The chat body; raises Unrenderable."""
    for name in STORED:
        if body.get(name) is not None:
            raise Unrenderable("stored", f"{name} is known to the worker only")
    messages = _messages(body)
    goes_on = _goes_on(body.get("input"))
    chat: Json = {
        "messages": messages,
        "add_generation_prompt": not goes_on,
        "continue_final_message": goes_on,
        "add_special_tokens": True,  # unlike a chat's
        **{name: body[name] for name in COPIED if name in body},
    }
    effort = mapping(body.get("reasoning"), "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    if body.get("tools"):
        chat["tools"] = list(function_tools(body["tools"]))
        chat["tool_choice"] = body.get("tool_choice")
    return chat


def function_tools(tools: object) -> Iterator[Json]:
    """The functions among the tools, in the chat API's shape."""
    if not isinstance(tools, list):
        raise Unrenderable("bad_field", "tools is not a list")
    for tool in tools:
        if not isinstance(tool, dict):
            raise Unrenderable("bad_field", "a tool that is no object")
        if tool.get("type") == "namespace":
            yield from _within(tool)
        elif tool.get("type") == "custom":
            yield _function({**tool, "parameters": FREE_TEXT})
        elif tool.get("type") == "function":
            yield _function(tool)


def _within(namespace: Json) -> Iterator[Json]:
    """The functions of a namespace, which is part of their names."""
    inner = namespace.get("tools")
    for tool in inner if isinstance(inner, list) else []:
        if isinstance(tool, dict) and tool.get("type") == "function":
            name = f"{namespace.get('name')}__{tool.get('name')}"
            yield _function({**tool, "name": name})


def _function(tool: Json) -> Json:
    function = {name: tool[name] for name in FUNCTION_FIELDS if name in tool}
    return {"type": "function", "function": function}


def _messages(body: Mapping[str, object]) -> list[Json]:
    messages: list[Json] = []
    instructions = body.get("instructions")
    if instructions:
        messages.append({"role": "system", "content": instructions})
    given = body.get("input")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise Unrenderable("bad_messages", "input is neither a string nor a list")
    history: list[Json] = []
    for item in given:
        _add(history, item)
    return messages + history


def _add(history: list[Json], item: object) -> None:
    """Append an item's message, or what it adds to the assistant's before it."""
    if not isinstance(item, dict):
        raise Unrenderable("bad_messages", "an input item that is no object")
    kind = item.get("type") or "message"
    if kind == "function_call":
        call = _tool_call(item)
        if history and history[-1]["role"] == "assistant":
            history[-1].setdefault("tool_calls", []).append(call)
        else:
            history.append({"role": "assistant", "tool_calls": [call]})
    elif kind == "function_call_output":
        history.append(
            {
                "role": "tool",
                "content": item.get("output"),
                "tool_call_id": item.get("call_id"),
            }
        )
    elif kind == "reasoning":
        _extend(history, "reasoning", _reasoning(item))
    elif kind == "message" and item.get("role") == "assistant":
        _extend(history, "content", _first_text(item.get("content")))
    elif kind == "message" and isinstance(item.get("role"), str):
        history.append({n: v for n, v in item.items() if n not in ("type", "status")})
    else:
        raise Unrenderable("bad_messages", f"an input item of type {str(kind)[:40]}")


def _extend(history: list[Json], name: str, text: str) -> None:
    """Reasoning, text and calls of one turn are one message of the assistant."""
    if history and history[-1]["role"] == "assistant" and history[-1].get(name) is None:
        history[-1][name] = text
    else:
        history.append({"role": "assistant", name: text})


def _tool_call(item: Json) -> Json:
    name = item.get("name")
    if not isinstance(name, str):
        raise Unrenderable("bad_messages", "a function call without a name")
    if isinstance(item.get("namespace"), str) and item["namespace"]:
        raise Unrenderable("bad_messages", "a function call in a namespace")
    function = {"name": name, "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "function": function, "type": "function"}


def _reasoning(item: Json) -> str:
    if item.get("encrypted_content"):
        raise Unrenderable("stored", "reasoning that is encrypted")
    return _first_text(item.get("content")) or _first_text(item.get("summary"))


def _first_text(content: Any) -> str:
    """The engine reads the first part only."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        return ""
    first = content[0]
    text = first.get("text", first.get("refusal")) if isinstance(first, dict) else first
    return text if isinstance(text, str) else ""


def _goes_on(given: object) -> bool:
    """Whether the last item is unfinished, so that the model is to go on with it."""
    last = given[-1] if isinstance(given, list) and given else None
    return (
        isinstance(last, dict)
        and last.get("type", "message") in ("message", "reasoning")
        and last.get("status") in UNFINISHED
    )
