"""What vLLM makes of a chat with gpt-oss: turns of the harmony format.

Told from the behaviour of 0.32 (`entrypoints/openai/parser/harmony_utils.py`,
`renderers/online_renderer.py`). Fields that are a template's business (documents, its
variables, going on with the last message) and truncation have no meaning there.
"""

from collections.abc import Iterator

from render.body import ChatBody, Json, function_of, objects
from render.errors import Unrenderable
from render.harmony import Harmony, Turn
from render.harmony_library import EFFORTS
from render.messages import is_media

DEVELOPERS = ("system", "developer")


def turns(body: ChatBody, harmony: Harmony) -> list[Turn]:
    """The turns of a chat body; raises Unrenderable."""
    messages = objects(body.messages, "messages", "bad_messages")
    instructions = None
    if messages and messages[0].get("role") in DEVELOPERS:
        instructions = _flat(messages[0].get("content"))
        messages = messages[1:]
    functions = list(_functions(body.tools))
    told = [harmony.system(effort=_effort(body), functions=bool(functions))]
    if instructions or functions:
        told.append(harmony.developer(instructions, functions))
    names = _function_names(messages)
    for message in messages:
        told += _turns(message, names, harmony)
    return _without_old_reasoning(told)


def _effort(body: ChatBody) -> str:
    effort = body.reasoning_effort
    if effort is None:
        return "medium"
    if effort not in EFFORTS:
        words = f"Harmony does not support reasoning_effort={effort!r}"
        raise Unrenderable("bad_field", words)
    return str(effort)


def _functions(tools: object) -> Iterator[Json]:
    if tools is None:
        return
    for tool in objects(tools, "tools"):
        function = function_of(tool, "a tool")
        yield {
            "name": function.get("name"),
            "description": function.get("description") or "",
            "parameters": function.get("parameters"),
        }


def _function_names(messages: list[Json]) -> dict[object, str]:
    """The names of the functions that were called, by the ids of the calls."""
    return {
        call.get("id"): call["function"]["name"]
        for message in messages
        for call in _calls(message)
    }


def _calls(message: Json) -> list[Json]:
    calls = objects(message.get("tool_calls") or [], "tool_calls", "bad_messages")
    for call in calls:
        function = call.get("function")
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not isinstance(function.get("arguments") or "", str)
            or not isinstance(call.get("id"), str | None)
        ):
            raise Unrenderable("bad_messages", "a tool call that is not of a function")
    return calls


def _turns(message: Json, names: dict[object, str], harmony: Harmony) -> Iterator[Turn]:
    role = message.get("role")
    content = message.get("content")
    if role == "assistant":
        yield from _assistant(message)
    elif role == "tool":
        id_ = message.get("tool_call_id")
        name = names.get(id_, "") if isinstance(id_, str) else ""
        yield Turn(
            author=f"functions.{name}",
            channel="commentary",
            recipient="assistant",
            recipient_last=True,
            texts=(_flat(content) or "",),
        )
    elif role in DEVELOPERS:
        instructions = _flat(content)
        if instructions is not None:
            yield harmony.developer(instructions, ())
    elif role == "user":
        yield Turn(author="user", texts=_texts(content))
    else:
        raise Unrenderable("bad_messages", f"a message of role {str(role)[:40]!r}")


def _assistant(message: Json) -> Iterator[Turn]:
    calls = _calls(message)
    content = message.get("content")
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None and not isinstance(reasoning, str):
        raise Unrenderable("bad_messages", "reasoning that is no text")
    text = _flat(content) if calls else None
    if text:
        yield Turn(author="assistant", channel="commentary", texts=(text,))
    if reasoning:
        yield Turn(author="assistant", channel="analysis", texts=(reasoning,))
    for call in calls:
        yield Turn(
            author="assistant",
            recipient=f"functions.{call['function']['name']}",
            channel="commentary",
            content_type="json",
            texts=(call["function"].get("arguments") or "",),
            is_call=True,
        )
    texts = () if calls else _texts(content)
    if texts and texts[0]:
        yield Turn(author="assistant", channel="final", texts=texts)


def _texts(content: object) -> tuple[str, ...]:
    """Each text of a content."""
    if not content:
        return () if content == [] else ("",)
    if isinstance(content, str):
        return (content,)
    return tuple(_part(part) or "" for part in _parts(content))


def _flat(content: object) -> str | None:
    """The texts of a content in one, None if there are none."""
    if content is None or isinstance(content, str):
        return content
    texts = [text for text in map(_part, _parts(content)) if text is not None]
    return "".join(texts) if texts else None


def _parts(content: object) -> list[object]:
    if not isinstance(content, list):
        raise Unrenderable("bad_messages", "content is neither a string nor a list")
    return content


def _part(part: object) -> str | None:
    if is_media(part):
        raise Unrenderable("media", "content that is not text")
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) else part
    if text is not None and not isinstance(text, str):
        raise Unrenderable("bad_messages", "a content part whose text is no string")
    return text


def _without_old_reasoning(told: list[Turn]) -> list[Turn]:
    """Reasoning is forgotten once an answer has been given."""
    answers = [i for i, turn in enumerate(told) if turn.channel == "final"]
    last = answers[-1] if answers else 0
    return [t for i, t in enumerate(told) if i >= last or t.channel != "analysis"]
