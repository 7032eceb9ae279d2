"""Prepared conversations for tests of profiles."""

import json
from typing import Any

from render.body import read_chat
from render.content_format import ContentFormat
from render.conversation import Conversation
from render.profiles import vllm
from render.template import ChatTemplate, ChatTemplates, chat_environment

PLAIN = "{{ messages }}"
USER = {"role": "user", "content": "hi"}


def prepared(
    source: str = PLAIN,
    *,
    content_format: ContentFormat | None = None,
    defaults: dict[str, object] | None = None,
    **body: Any,
) -> Conversation:
    """A body, by default of one message, as vLLM's profile prepares it."""
    template = ChatTemplate(source, chat_environment())
    return vllm.prepare(
        read_chat(json.dumps({"messages": [USER], **body}).encode()),
        ChatTemplates(given=template, processor=None, tokenizer={}),
        content_format=content_format,
        defaults=defaults or {},
    )


def shown(message: dict[str, Any], content_format: ContentFormat = "string") -> str:
    """The one message as the template gets it, as JSON: the order of keys counts."""
    conversation = prepared(messages=[message], content_format=content_format)
    return json.dumps(conversation.messages[0], ensure_ascii=False)


def parts(*texts: str | None) -> list[dict[str, Any]]:
    """Content as a list of text parts."""
    return [{"type": "text", "text": text} for text in texts]
