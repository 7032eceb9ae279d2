"""What TensorRT-LLM makes of a chat with gpt-oss: turns of the harmony format.

Told from the behaviour of its adapter (`tensorrt_llm/serve/harmony_adapter.py`): texts
are stripped, system messages take the place of the model's identity, and there is a
developer message even if there is nothing to tell.
"""

import re
from collections.abc import Iterator

from render.body import ChatBody, Json, function_of, objects
from render.errors import Unrenderable
from render.harmony import Harmony, Turn
from render.harmony_library import EFFORTS
from render.messages import is_media

# What is told before a call, as the engine writes it into the content of its answers.
PREAMBLE = re.compile(r"<\|channel\|>commentary<\|message\|>(.*?)<\|end\|>", re.DOTALL)


def turns(body: ChatBody, harmony: Harmony) -> list[Turn]:
    """The turns of a chat body; raises Unrenderable."""
    messages = objects(body.messages, "messages", "bad_messages")
    tools = None if body.tool_choice == "none" else body.tools
    functions = list(_functions(tools))
    told = _told(messages, "system")
    developer = harmony.developer(
        "\n".join(_told(messages, "developer")) or None, functions
    )
    system = harmony.system(
        effort=_effort(body),
        functions=bool(functions),
        identity="\n".join(told) or None,
    )
    names = _function_names(messages)
    known = {function["name"] for function in functions} if tools else None
    shown = [turn for message in messages for turn in _turns(message, names, known)]
    return _without_old_reasoning([system, developer, *shown])


def _effort(body: ChatBody) -> str:
    effort = "low" if body.reasoning_effort is None else body.reasoning_effort
    if effort not in EFFORTS:
        raise Unrenderable("bad_field", "reasoning_effort is not low, medium or high")
    return str(effort)


def _functions(tools: object) -> Iterator[Json]:
    if tools is None:
        return
    for tool in objects(tools, "tools"):
        function = function_of(tool, "a tool")
        if function.get("name"):
            yield {
                "name": function["name"],
                "description": function.get("description"),
                "parameters": function.get("parameters"),
            }


def _told(messages: list[Json], role: str) -> list[str]:
    contents = (m.get("content") for m in messages if m.get("role") == role)
    return [text.strip() for text in map(_content, contents) if text]


def _content(content: object) -> str:
    """The texts of a content, stripped, one a line."""
    if not content:
        return ""
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, list):
        raise Unrenderable("bad_messages", "content is neither a string nor a list")
    texts = []
    for part in content:
        if is_media(part):
            raise Unrenderable("media", "content that is not text")
        if isinstance(part, dict) and "text" in part:
            if not isinstance(part["text"], str):
                raise Unrenderable("bad_messages", "a text part whose text is none")
            texts.append(part["text"].strip())
    return "\n".join(texts)


def _function_names(messages: list[Json]) -> dict[object, str]:
    return {
        call.get("id"): call["function"]["name"]
        for message in messages
        if message.get("role") == "assistant"
        for call in _calls(message)
        if call.get("id") and call["function"]["name"]
    }


def _calls(message: Json) -> list[Json]:
    calls = objects(message.get("tool_calls") or [], "tool_calls", "bad_messages")
    for call in calls:
        function = call.get("function")
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not isinstance(function.get("arguments", "{}"), str)
            or not isinstance(call.get("id"), str | None)
        ):
            raise Unrenderable("bad_messages", "a tool call that is not of a function")
    return calls


def _turns(
    message: Json, names: dict[object, str], known: set[str] | None
) -> Iterator[Turn]:
    role = message.get("role")
    if role == "user":
        yield Turn(author="user", texts=(_content(message.get("content")),))
    elif role == "assistant":
        yield from _assistant(message, known)
    elif role == "tool":
        id_ = message.get("tool_call_id")
        name = names.get(id_) if isinstance(id_, str) else None
        name = name or message.get("name", "tool")
        if not isinstance(name, str):
            raise Unrenderable("bad_messages", "a name that is no text")
        yield Turn(
            author=name if "." in name or not name else f"functions.{name}",
            channel="commentary",
            recipient="assistant",
            texts=(_content(message.get("content")),),
        )


def _assistant(message: Json, known: set[str] | None) -> Iterator[Turn]:
    reasoning = message.get("reasoning")
    content = _content(message.get("content"))
    told = PREAMBLE.search(content)
    preamble = told[1].strip() if told else ""
    final = PREAMBLE.sub("", content).strip() if preamble else content
    for text in (reasoning, "" if final else message.get("reasoning_content", "")):
        if text is not None and not isinstance(text, str):
            raise Unrenderable("bad_messages", "reasoning that is no text")
        if text:
            yield Turn(author="assistant", channel="analysis", texts=(text,))
    if preamble and "tool_calls" in message:
        yield Turn(author="assistant", channel="commentary", texts=(preamble,))
    for call in _calls(message):
        name = call["function"]["name"]
        if known is not None and name not in known:
            continue
        yield Turn(
            author="assistant",
            recipient=f"functions.{name}",
            channel="commentary",
            content_type="<|constrain|>json",
            texts=(call["function"].get("arguments", "{}"),),
            is_call=True,
        )
    if "tool_calls" not in message and not final:
        final = content
    if final:
        yield Turn(author="assistant", channel="final", texts=(final,))


def _without_old_reasoning(told: list[Turn]) -> list[Turn]:
    """As the library does: only if the assistant's last message is an answer."""
    spoken = [turn for turn in told if turn.author == "assistant"]
    answers = [i for i, turn in enumerate(told) if turn.channel == "final"]
    if not answers or spoken[-1].channel != "final":
        return told
    first = answers[0]
    return [t for i, t in enumerate(told) if i >= first or t.channel != "analysis"]
