"""Fields that contradict others, and shapes that are not of the API: 400, and named."""

import json
from typing import Any

import pytest

from render import RenderRefused
from render.checks import check_chat, check_completion
from render.message_checks import check_messages, check_tools, media_part
from render.request import read_request
from render.responses_checks import check_responses

TOOL = {"type": "function", "function": {"name": "f"}}
FORMAT = "body.response_format.ResponseFormat.type"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {}}, "tool_choice.function"),
        (
            {"tools": [TOOL], "tool_choice": {"function": {}}},
            "tool_choice.function.name",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"function": {"name": ""}}},
            "tool_choice.function.name",
        ),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "g"}}}, "tool_choice"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"top_logprobs": -2, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": "1"}, "top_logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "xml"}}, FORMAT),
        ({"response_format": {}}, FORMAT),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "a/b"}, "cache_salt"),
        ({"cache_salt": "a" * 129}, "cache_salt"),
        ({"cache_salt": 5}, "cache_salt"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, None),
        ({"continue_final_message": True, "add_generation_prompt": True}, None),
    ],
)
def test_chat(body: dict[str, Any], param: str | None) -> None:
    """Each contradiction of a chat body."""
    with pytest.raises(RenderRefused) as caught:
        check_chat(body)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": {"function": {"name": "f"}}},
        {"tool_choice": "none"},
        {"tool_choice": None, "tools": None},
        {"logprobs": True, "top_logprobs": 3},
        {"stream": True, "stream_options": {}},
        {"cache_salt": "a" * 128},
        {"continue_final_message": True},
        {"response_format": {"type": "text"}},
    ],
)
def test_chats_that_pass(body: dict[str, Any]) -> None:
    """What does not contradict itself is not refused here."""
    check_chat(body)


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        ("", "prompt"),
        (5, "body.prompt"),
        ({"a": 1}, "body.prompt"),
        ([1.5], "body.prompt.0"),
        ([1, -1], "body.prompt.1"),
        ([[1], "a"], "body.prompt.1"),
        ([[1], [2, -3]], "body.prompt.1.1"),
        (["a", 5], "body.prompt.0"),
    ],
)
def test_prompts(prompt: Any, param: str) -> None:
    """A prompt is a text, texts, ids or lists of ids; the first wrong item is named."""
    with pytest.raises(RenderRefused) as caught:
        check_completion({"prompt": prompt})
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "body.input"),
        ({"input": 5}, "body.input"),
        ({"input": "x", "background": True, "store": False}, "background"),
        ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
    ],
)
def test_responses(body: dict[str, Any], param: str) -> None:
    """Each contradiction of a responses body."""
    with pytest.raises(RenderRefused) as caught:
        check_responses(body)
    assert (caught.value.status, caught.value.param) == (400, param)


KIND = "ChatCompletionDeveloperMessageParam"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (5, "body.messages"),
        (["x"], f"body.messages.0.{KIND}"),
        ([{}], f"body.messages.0.{KIND}.role"),
        ([{"role": 5}], f"body.messages.0.{KIND}.role"),
        ([{"role": "user", "content": None}], f"body.messages.0.{KIND}.content"),
        ([{"role": "assistant", "content": 5}], f"body.messages.0.{KIND}.content"),
    ],
)
def test_messages(messages: Any, param: str) -> None:
    """Messages of another shape."""
    with pytest.raises(RenderRefused) as caught:
        check_messages({"messages": messages})
    assert (caught.value.type, caught.value.param) == ("Bad Request", param)


def test_messages_that_pass() -> None:
    """Any role, no content, an assistant's null: the engine takes them."""
    check_messages({"messages": []})
    check_messages({"messages": [{"role": "alien"}, {"role": "user", "content": []}]})
    check_messages({"messages": [{"role": "assistant", "content": None}]})


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        (5, "body.tools.0"),
        ({}, "body.tools.0.function"),
        ({"function": {}}, "body.tools.0.function.name"),
        ({"type": "custom", "function": {"name": "f"}}, "body.tools.0.type"),
    ],
)
def test_tools(tool: Any, param: str) -> None:
    """Tools of another shape."""
    with pytest.raises(RenderRefused) as caught:
        check_tools([tool])
    assert (caught.value.status, caught.value.param) == (400, param)


def test_where_media_is() -> None:
    """The first part that is not text, by its place and kind."""
    parts = [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}]
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": parts}]
    assert media_part(messages) == "messages.1.content.1 is input_audio"
    assert media_part([{"role": "user", "content": [{"image_url": "u"}]}]) == (
        "messages.0.content.0 is image_url"
    )
    assert media_part(messages[:1]) is None
    assert media_part("messages") is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"{bad", "body.1"),
        (b'{"a": 1,}', "body.8"),
        (b"[1]", "body"),
        (b"\xff", "body"),
        (b"[" * 100_000, "body"),
    ],
)
def test_what_is_no_object(body: bytes, param: str) -> None:
    """JSON that cannot be read, or is no object; where it breaks is named."""
    with pytest.raises(RenderRefused) as caught:
        read_request(body)
    assert (caught.value.type, caught.value.param) == ("Bad Request", param)
    json.dumps(caught.value.body())
