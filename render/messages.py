"""Messages and their content: its parts, and which of them are text.

Common to the engines; how the text of several parts is put together is each engine's
own way (`profiles/`).
"""

from render.body import Json
from render.errors import Unrenderable

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


def messages_of(messages: object) -> list[Json]:
    """Messages that a template may be shown; raises Unrenderable("bad_messages")."""
    if not isinstance(messages, list) or not messages:
        raise Unrenderable("bad_messages", "messages is not a list with messages in it")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Unrenderable("bad_messages", "a message without a role")
    return messages


def content_parts(content: object) -> list[object]:
    """Content as a list of parts; raises Unrenderable("bad_messages")."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise Unrenderable("bad_messages", "content is neither a string nor a list")


def text_part(part: object) -> Json | None:
    """A content part as a template gets it; None for one without text.

    Fields of the part that no API names are kept. Raises Unrenderable.
    """
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise Unrenderable("bad_messages", "a content part that is no object")
    kind = part.get("type")
    if is_reference(part) and isinstance(part.get("name"), str):
        return {"type": "tool_reference", "name": part["name"]}
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        if is_media(part):
            raise Unrenderable("media", "content that is not text")
        raise Unrenderable("bad_messages", "a content part of unknown type")
    text = part.get(TEXT_PARTS[kind])
    if text is None:
        return None
    if not isinstance(text, str):
        raise Unrenderable("bad_messages", "a text part whose text is no string")
    extra = {k: v for k, v in part.items() if k not in KNOWN_PART_FIELDS}
    return {"type": "text", "text": text, **extra}


def is_media(part: object) -> bool:
    """Whether a part is, or carries, something that is not text."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return not MEDIA_PARTS.isdisjoint(part) or (
        isinstance(kind, str) and kind in MEDIA_PARTS
    )


def is_reference(part: Json) -> bool:
    """Whether a part only names a tool (`tool_reference`)."""
    return part.get("type") == "tool_reference"


def ordered(value: Json, first: tuple[str, ...]) -> Json:
    """The same object with these keys first, in this order."""
    known = {name: value[name] for name in first if name in value}
    return {**known, **value}


def joined_text(content: str | list[Json]) -> str:
    """The text of shown content, one line for each part."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)
