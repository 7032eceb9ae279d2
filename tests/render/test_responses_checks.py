"""What is refused in a responses body, and how its tools and ids are made."""

from typing import Any

import pytest

from render import Renderer, RenderRefused
from render.responses import FREE_TEXT, chat_body
from render.responses_checks import check_responses
from tests.render.services import body, refusal, service

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [5]},
        {"input": [{"role": "user", "content": None}]},
        {"input": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": None}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "required"},
        {"tool_choice": 5},
        {"tool_choice": {"type": "function", "name": "f"}},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}},
    ],
)
def test_refused(fields: dict[str, Any]) -> None:
    """Items, tools and choices that vLLM does not read."""
    with pytest.raises(RenderRefused) as caught:
        check_responses({"input": "hi", **fields})
    assert caught.value.status == 400


def test_tools_that_are_shown_as_functions() -> None:
    """A custom tool takes a text; one in a namespace is called by both names."""
    custom = {"type": "custom", "name": "c", "format": {"type": "text"}}
    space = {"type": "namespace", "name": "n", "tools": [TOOL, {"type": "custom"}]}
    tools = chat_body({"input": "hi", "tools": [custom, space]})["tools"]
    assert [tool["function"] for tool in tools] == [
        {"name": "c", "parameters": FREE_TEXT},
        {"name": "n__f", "parameters": {"type": "object"}},
    ]


def test_flags_of_tools_are_read_leniently(vllm: Renderer) -> None:
    """A template is shown the flag that a text or a number stands for."""

    def ids(strict: object) -> object:
        tool = {"type": "function", "function": {"name": "f", "strict": strict}}
        parsing = service(vllm, tool_call_parser="hermes")
        return parsing.chat(body(tools=[tool]))["token_ids"]

    assert ids("1") == ids(1) == ids(True) != ids(False)


def test_special_tokens_are_added() -> None:
    """Unlike to a chat: vLLM tokenizes a response's prompt as a text."""
    assert chat_body({"input": "hi"})["add_special_tokens"] is True


def test_messages_of_the_chat_api_only(vllm: Renderer) -> None:
    """Calls are whole, names texts; one good part makes a message good."""
    good, bad = {"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}
    for message in (
        {"role": "user", "content": [bad]},
        {"role": "user", "content": "a", "name": None},
        {"role": "tool", "content": "a", "tool_call_id": 5},
        {"role": "assistant", "tool_calls": [{"type": "function"}]},
    ):
        assert refusal(service(vllm), messages=[message]).status == 400
    mixed = body(messages=[{"role": "user", "content": [good, bad]}])
    assert service(vllm).chat(mixed)["token_ids"]


def test_tokenizing_has_no_limit_and_no_older_names(vllm: Renderer) -> None:
    """A long prompt is tokenized; `reasoning_content` is not known there."""
    small = service(vllm, max_model_len=4)
    assert small.tokenize(b'{"prompt": "a b c d e f g h"}')["count"] > 4
    turn = {"role": "assistant", "content": "</think>"}
    thought = {**turn, "reasoning_content": "hm"}
    assert (
        small.tokenize(body(messages=[thought]))["tokens"]
        == small.tokenize(body(messages=[turn]))["tokens"]
    )
