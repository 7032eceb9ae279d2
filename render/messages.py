"""Request bodies as far as rendering reads them: decoded once, never changed.

Which fields there are and how odd values are taken is common to the engines; what an
engine makes of the messages is its profile's business.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec

from render.errors import Unrenderable

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


def read_completion(body: bytes | Mapping[str, object]) -> CompletionBody:
    """Decode a completion body; raises Unrenderable("bad_json")."""
    return _read(body, CompletionBody)


def _read(body: bytes | Mapping[str, object], type_: type[Body]) -> Body:
    try:
        if isinstance(body, Mapping):
            return msgspec.convert(dict(body), type_)
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Unrenderable("bad_json", str(error)) from error


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


def truncation(body: ChatBody | CompletionBody) -> Truncation | None:
    """`truncate_prompt_tokens` and `truncation_side`.

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
    return Truncation(tokens=tokens, keep_first=side == "right")


# Where the text of each kind of text part is.
TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
MEDIA_PARTS = frozenset(
    {
        "image_url",
        "input_image",
        "image_pil",
        "image_embeds",
        "audio_url",
        "input_audio",
        "audio_embeds",
        "video_url",
        "video_embeds",
        "prompt_embeds",
        "file",
    }
)
# The fields of content parts that vLLM knows; templates see only the others.
KNOWN_PART_FIELDS = MEDIA_PARTS | {
    "type",
    "text",
    "refusal",
    "thinking",
    "closed",
    "name",
    "data",
    "uuid",
    "prompt_cache_breakpoint",
}


def is_list_of_objects(value: object) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def content_parts(content: object) -> list[object]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise Unrenderable("bad_messages", "content is neither a string nor a list")


def text_part(part: object) -> Json | None:
    """A content part as a template gets it; None for one without text."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if is_media(part):
        raise Unrenderable("media", "content that is not text")
    if not isinstance(part, dict) or part.get("uuid") is not None:
        raise Unrenderable("bad_messages", "a content part of no known shape")
    if is_reference(part) and isinstance(part.get("name"), str):
        return {"type": "tool_reference", "name": part["name"]}
    kind = part.get("type")
    field = TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        raise Unrenderable("bad_messages", "a content part of unknown type")
    text = part.get(field)
    if text is None:
        return None
    if not isinstance(text, str):
        raise Unrenderable("bad_messages", "a text part whose text is no string")
    extra = {k: v for k, v in part.items() if k not in KNOWN_PART_FIELDS}
    return {"type": "text", "text": text, **extra}


def is_media(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return not MEDIA_PARTS.isdisjoint(part) or (
        isinstance(kind, str) and kind in MEDIA_PARTS
    )


def is_reference(part: Json) -> bool:
    return part.get("type") == "tool_reference"


def ordered(value: Json, first: tuple[str, ...]) -> Json:
    """The keys vLLM's models know come first, in their order."""
    known = {name: value[name] for name in first if name in value}
    return {**known, **value}


def joined_text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)
