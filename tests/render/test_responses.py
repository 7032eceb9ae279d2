"""Self-contained responses bodies as the chats they amount to."""

import json
from pathlib import Path
from typing import Any

import pytest

from render import Renderer, Unrenderable
from render.responses import chat_body
from tests.render import models

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SHOWN_CALL = {
    "id": "c",
    "function": {"name": "f", "arguments": "{}"},
    "type": "function",
}
THINKS = {"type": "reasoning", "id": "r", "summary": [], "content": [{"text": "hm"}]}
SAYS = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "a"}, {"type": "x", "text": "b"}],
}


def messages(*items: Any, **body: Any) -> list[dict[str, Any]]:
    """The messages of a body with these items."""
    shown: list[dict[str, Any]] = chat_body({"input": [*items], **body})["messages"]
    return shown


def test_text_with_instructions() -> None:
    """Instructions are the system's, a text is the user's."""
    chat = chat_body({"input": "hi", "instructions": "be brief"})
    assert chat["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]
    assert chat["add_generation_prompt"] is True
    assert "tools" not in chat


def test_a_turn_of_the_assistant_is_one_message() -> None:
    """Reasoning, text and calls after each other are put together."""
    assert messages(THINKS, SAYS, CALL, {**CALL, "call_id": "d"}) == [
        {
            "role": "assistant",
            "reasoning": "hm",
            "content": "a",
            "tool_calls": [SHOWN_CALL, {**SHOWN_CALL, "id": "d"}],
        }
    ]
    assert messages(SAYS, SAYS) == 2 * [{"role": "assistant", "content": "a"}]


def test_outputs_of_functions() -> None:
    """They are messages of the tool; a call after them is a new turn."""
    output = {"type": "function_call_output", "call_id": "c", "output": "5"}
    assert messages(CALL, output, CALL) == [
        {"role": "assistant", "tool_calls": [SHOWN_CALL]},
        {"role": "tool", "content": "5", "tool_call_id": "c"},
        {"role": "assistant", "tool_calls": [SHOWN_CALL]},
    ]


def test_other_messages_pass() -> None:
    """Roles and parts are the engine's business; type and status are not shown."""
    item = {
        "type": "message",
        "role": "developer",
        "content": "x",
        "status": "completed",
    }
    assert messages(item) == [{"role": "developer", "content": "x"}]
    bare = {"role": "user", "content": [{"type": "input_text", "text": "a"}]}
    assert messages(bare) == [bare]


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
def test_an_unfinished_message_goes_on(status: str) -> None:
    """The model goes on with a last message that is not complete."""
    chat = chat_body({"input": [{**SAYS, "status": status}]})
    assert chat["continue_final_message"] is True
    assert chat["add_generation_prompt"] is False


def test_tools() -> None:
    """Functions are shown in the chat API's shape, other tools are not."""
    function = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    chat = chat_body({"input": "x", "tools": [{"type": "web_search"}, function]})
    wanted = {"name": "f", "parameters": {}, "strict": True}
    assert chat["tools"] == [{"type": "function", "function": wanted}]


def test_reasoning_options() -> None:
    """The effort is the chat's; template variables are copied."""
    body = {"input": "x", "reasoning": {"effort": "low", "summary": "auto"}}
    assert chat_body(body)["reasoning_effort"] == "low"
    chat = chat_body({"input": "x", "chat_template_kwargs": {"a": 1}})
    assert chat["chat_template_kwargs"] == {"a": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"input": "x", "previous_response_id": "r"}, "stored"),
        ({"input": "x", "conversation": "c"}, "stored"),
        ({"input": "x", "prompt": {"id": "p"}}, "stored"),
        ({"input": [{**THINKS, "encrypted_content": "e"}]}, "stored"),
        ({}, "bad_messages"),
        ({"input": 5}, "bad_messages"),
        ({"input": ["x"]}, "bad_messages"),
        ({"input": [{"type": "computer_call"}]}, "bad_messages"),
        ({"input": [{"type": "item_reference", "id": "i"}]}, "bad_messages"),
        ({"input": "x", "tools": 5}, "bad_field"),
        ({"input": "x", "reasoning": 5}, "bad_field"),
    ],
)
def test_what_is_not_rendered(body: dict[str, Any], reason: str) -> None:
    """What only the worker knows, or no template is given, says so."""
    with pytest.raises(Unrenderable) as caught:
        chat_body(body)
    assert caught.value.reason == reason


@pytest.mark.parametrize("profile", ["vllm", "trtllm", "sglang"])
def test_rendered_as_the_chat(tmp_path: Path, profile: str) -> None:
    """A response has the ids of its chat, with every engine."""
    path = models.save(tmp_path, models.byte_level())
    renderer = Renderer.load(path, profile=profile, encoder="tokenizers")
    response = renderer.render_responses(json.dumps({"input": "hi"}).encode())
    chat = renderer.render_chat({"messages": [{"role": "user", "content": "hi"}]})
    assert response.token_ids == chat.token_ids
    with pytest.raises(Unrenderable) as caught:
        renderer.render_responses(b"[1]")
    assert caught.value.reason == "bad_json"
