"""Request bodies as far as rendering reads them: decoded once, never changed.

Which fields there are and how odd values are taken is common to the engines; what an
engine makes of the messages is its profile's business.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from render.errors import Reason, Unrenderable

Json = dict[str, Any]


class ChatBody(msgspec.Struct, frozen=True):
    """The fields of a chat completion body that can reach the prompt."""

    messages: Any = None
    tools: Any = None
    documents: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    add_generation_prompt: Any = None
    continue_final_message: Any = None
    reasoning_effort: Any = None
    add_special_tokens: Any = None
    truncate_prompt_tokens: Any = None
    truncation_side: Any = None
    kv_transfer_params: Any = None
    echo: Any = None
    prompt_token_ids: Any = None
    input_ids: Any = None
    tool_choice: Any = None
    reasoning: Any = None


class CompletionBody(msgspec.Struct, frozen=True):
    """The fields of a completion body that can reach the prompt."""

    prompt: Any = None
    prompt_embeds: Any = None
    add_special_tokens: Any = None
    truncate_prompt_tokens: Any = None
    truncation_side: Any = None


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """Keep so many tokens of the prompt: the last ones, or the first (`keep_first`)."""

    tokens: int
    keep_first: bool


Body = TypeVar("Body", ChatBody, CompletionBody)


def read_chat(body: bytes | Mapping[str, object]) -> ChatBody:
    """Decode a chat body; raises Unrenderable("bad_json")."""
    return _read(body, ChatBody)


def read_object(body: bytes | Mapping[str, object]) -> Mapping[str, object]:
    """Decode any body that is an object; raises Unrenderable("bad_json")."""
    if isinstance(body, Mapping):
        return body
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except UNREADABLE as error:
        raise Unrenderable("bad_json", str(error)) from error


def read_completion(body: bytes | Mapping[str, object]) -> CompletionBody:
    """Decode a completion body; raises Unrenderable("bad_json")."""
    return _read(body, CompletionBody)


def _read(body: bytes | Mapping[str, object], type_: type[Body]) -> Body:
    try:
        if isinstance(body, Mapping):
            return msgspec.convert(dict(body), type_)
        return msgspec.json.decode(body, type=type_)
    except UNREADABLE as error:
        raise Unrenderable("bad_json", str(error)) from error


UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError)
"""What decoding raises; a TypeError for what is neither bytes nor an object."""

FLAGS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


def flag(value: object, name: str, *, default: bool) -> bool:
    """A boolean field, as leniently read as pydantic does; None is the default."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in FLAGS:
        return FLAGS[value.lower()]
    raise Unrenderable("bad_field", f"{name} is not a boolean")


def mapping(value: object, name: str) -> Json:
    """A field that is an object; None is an empty one."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise Unrenderable("bad_field", f"{name} is not an object")


def truncation(
    body: ChatBody | CompletionBody, *, keep_first: bool = False
) -> Truncation | None:
    """`truncate_prompt_tokens` and `truncation_side`; `keep_first` if that is not said.

    -1 ("what fits the model") is no truncation here: only the worker knows what fits,
    and a prompt that fits is not changed by it.
    """
    tokens = body.truncate_prompt_tokens
    side = body.truncation_side
    if side not in (None, "left", "right"):
        raise Unrenderable("bad_field", "truncation_side is neither left nor right")
    if tokens is None:
        return None
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < -1:
        raise Unrenderable("bad_field", "truncate_prompt_tokens is not a count")
    if tokens == -1:
        return None
    return Truncation(
        tokens=tokens, keep_first=keep_first if side is None else side == "right"
    )


def prompts(body: CompletionBody) -> list[str] | list[list[object]]:
    """Each prompt: one is a text, or a list of ids; raises Unrenderable."""
    if body.prompt_embeds is not None:
        raise Unrenderable("media", "a prompt of embeddings")
    prompt = body.prompt
    if isinstance(prompt, str):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise Unrenderable("bad_prompt", "no prompt")
    if isinstance(prompt[0], int):
        prompt = [prompt]
    kind = type(prompt[0])
    if kind not in (str, list) or not all(type(p) is kind and p for p in prompt):
        raise Unrenderable("bad_prompt", "prompts are texts, or lists of ids")
    return prompt


def objects(value: object, name: str, reason: Reason = "bad_field") -> list[Json]:
    """A field that is a list of objects; raises Unrenderable."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return value
    raise Unrenderable(reason, f"{name} is not a list of objects")


def function_of(value: Json, what: str, reason: Reason = "bad_field") -> Json:
    """The function that a tool, or a tool call, is of; raises Unrenderable."""
    function = value.get("function")
    if isinstance(function, dict):
        return function
    raise Unrenderable(reason, f"{what} without a function")
