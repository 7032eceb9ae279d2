"""The same templates write the same text here and in transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from render import Unrenderable
from render.body import read_chat
from render.conversation import Conversation
from render.profiles import vllm
from render.template import ChatTemplate, ChatTemplates, chat_environment
from tests.render import models

TEMPLATES = sorted(
    (Path(__file__).parent.parent / "data" / "templates").glob("*.jinja")
)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": "Hi <there> & 'you'\n"}
CALL = {
    "type": "function",
    "index": 0,
    "id": "call_1",
    "function": {
        "name": "get_weather",
        "arguments": '{"city": "Zürich", "n": 1.0, "big": 123456789012345678901}',
    },
}
TOOL = {
    "function": {
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["é", "<b>"]}},
        },
        "name": "get_weather",
        "description": 'It\'s <b>the</b> "weather" now',
    },
    "type": "function",
}
BODIES: dict[str, dict[str, Any]] = {
    "plain": {"messages": [USER]},
    "turns": {
        "messages": [
            {"role": "system", "content": "Be terse."},
            USER,
            {"role": "assistant", "content": " Hello  ", "reasoning": "greet"},
            {"role": "user", "content": "again"},
        ]
    },
    "alien": {"messages": [{"role": "alien", "content": "?"}, USER]},
    "tools": {"messages": [USER], "tools": [TOOL], "tool_choice": "auto"},
    "tool turn": {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"t": 5}'},
        ],
        "tools": [TOOL],
    },
    "parts": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "text", "text": "b", "cache_control": {"type": "x"}},
                ],
            }
        ]
    },
    "reasoning last": {
        "messages": [
            USER,
            {"role": "assistant", "content": "4", "reasoning_content": "easy"},
        ],
        "add_generation_prompt": False,
    },
    "continue": {
        "messages": [USER, {"role": "assistant", "content": "One, two "}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "documents": {
        "messages": [USER],
        "documents": [{"title": "A & B", "text": "x"}, {"title": "C"}],
        "reasoning_effort": "high",
    },
    "kwargs": {
        "messages": [USER],
        "chat_template_kwargs": {"enable_thinking": False, "bos_token": "<other>"},
    },
}


def _prepared(source: str, body: dict[str, Any]) -> Conversation:
    template = ChatTemplate(source, chat_environment())
    templates = ChatTemplates(given=template, processor=None, tokenizer={})
    raw = json.dumps(body).encode()
    return vllm.prepare(read_chat(raw), templates, content_format=None, defaults={})


@pytest.fixture(scope="session")
def apply_chat_template() -> Callable[[Conversation], str]:
    """transformers' own rendering of a conversation."""
    import transformers

    backend: Any = transformers.PreTrainedTokenizerFast
    tokenizer = backend(
        tokenizer_object=models.byte_level(), bos_token="<s>", eos_token="</s>"
    )

    def apply(conversation: Conversation) -> str:
        text = tokenizer.apply_chat_template(
            conversation.messages,
            chat_template=conversation.template.source,
            tools=conversation.tools,
            documents=conversation.documents,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            tokenize=False,
            **conversation.variables,
        )
        assert isinstance(text, str)
        return text

    return apply


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
@pytest.mark.parametrize("body", list(BODIES.values()), ids=list(BODIES))
def test_same_text_as_transformers(
    template: Path,
    body: dict[str, Any],
    apply_chat_template: Callable[[Conversation], str],
) -> None:
    """Each template writes the same text, or fails in both."""
    conversation = _prepared(template.read_text(encoding="utf-8"), body)
    try:
        expected = apply_chat_template(conversation)
    except Exception:
        with pytest.raises(Unrenderable, match="template_error"):
            conversation.text(SPECIAL)
    else:
        assert conversation.text(SPECIAL) == expected
