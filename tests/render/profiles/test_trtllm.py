"""TensorRT-LLM's messages, tools and variables, row by row of what it does."""

import json
from typing import Any

import pytest

from render import Unrenderable
from render.body import read_chat
from render.conversation import Conversation
from render.profiles import trtllm
from render.template import ChatTemplate, ChatTemplates, chat_environment

PARTS_TEMPLATE = (
    "{% for m in messages %}{% for p in m.content %}x{% endfor %}{% endfor %}"
)
USER = {"role": "user", "content": "hi"}
CALL = {
    "type": "function",
    "id": "call_1",
    "function": {"name": "f", "arguments": '{"a": 1}'},
}


def prepared(source: str = "{{ messages }}", **body: Any) -> Conversation:
    """A body, by default of one message, as the profile prepares it."""
    templates = ChatTemplates(
        given=ChatTemplate(source, chat_environment()), processor=None, tokenizer={}
    )
    chat = read_chat(json.dumps({"messages": [USER], **body}).encode())
    return trtllm.prepare(chat, templates, content_format=None, defaults={})


def shown(message: dict[str, Any], source: str = "{{ messages }}") -> str:
    """The message as the template gets it; the order of keys counts."""
    return json.dumps(prepared(source, messages=[message]).messages[0])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, "c"], "a\nc"),
        ([], ""),
    ],
)
def test_content_is_one_string(content: Any, text: str) -> None:
    """Whatever the template wants: parts make lines, empty ones are left out."""
    for source in ("{{ messages }}", PARTS_TEMPLATE):
        wanted = json.dumps({"role": "user", "content": text, "media": []})
        assert shown({"role": "user", "content": content}, source) == wanted


def test_keys_kept() -> None:
    """A name is dropped; tools of a system message and a call's id stay."""
    user = {"role": "user", "name": "ada", "content": "x"}
    assert shown(user) == '{"role": "user", "content": "x", "media": []}'
    tool = {"role": "tool", "tool_call_id": "c", "name": "f", "content": "5"}
    wanted = '{"role": "tool", "content": "5", "media": [], "tool_call_id": "c"}'
    assert shown(tool) == wanted
    system = {"role": "system", "content": "s", "tools": [{"a": 1}]}
    wanted = '{"role": "system", "content": "s", "media": [], "tools": [{"a": 1}]}'
    assert shown(system) == wanted


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": "r"},
        {"reasoning_content": "r"},
        {"reasoning": "r", "reasoning_content": "q"},
    ],
)
def test_reasoning_has_one_name(fields: dict[str, str]) -> None:
    """`reasoning`, else `reasoning_content`, is shown as `reasoning_content`."""
    message = prepared(messages=[{"role": "assistant", "content": "a", **fields}])
    assert message.messages[0]["reasoning_content"] == "r"
    assert "reasoning" not in message.messages[0]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ('{"a": 1}', {"a": 1}),
        (None, {}),
        ({"b": 2}, {"b": 2}),
        ("{not json", "{not json"),
        ("", ""),
    ],
)
def test_arguments(arguments: Any, wanted: Any) -> None:
    """JSON becomes an object; what is none stays the string it is."""
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    calls = prepared(messages=messages).messages[1]["tool_calls"]
    assert calls[0]["function"]["arguments"] == wanted


@pytest.mark.parametrize("arguments", ["[1]", "5", [1], 5, '"x"'])
def test_arguments_that_are_no_object(arguments: Any) -> None:
    """JSON of another kind is refused."""
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    messages = [USER, {"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(Unrenderable) as caught:
        prepared(messages=messages)
    assert caught.value.reason == "bad_messages"


def test_the_order_of_a_tool_call() -> None:
    """As the API's model has it; as written where that model refuses the body."""
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    call = prepared(messages=messages).messages[1]["tool_calls"][0]
    assert list(call) == ["id", "function", "type"]
    assert list(call["function"]) == ["arguments", "name"]
    loose = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [loose]}]
    call = prepared(messages=messages).messages[1]["tool_calls"][0]
    assert list(call) == ["id", "type", "function"]
    assert list(call["function"]) == ["name", "arguments"]


def test_tools_are_dumped() -> None:
    """Known keys in order, absent ones null, others dropped, whatever the choice."""
    tool = {"function": {"x": 1, "parameters": {"p": 1}, "name": "f"}, "y": 2}
    for choice in ("none", "auto", {"type": "function", "function": {"name": "f"}}):
        conversation = prepared(tools=[tool], tool_choice=choice)
        wanted = (
            '[{"type": "function", "function": {"name": "f", "description": null, '
            '"parameters": {"p": 1}}}]'
        )
        assert json.dumps(conversation.tools) == wanted


def test_variables_pass_through() -> None:
    """Template variables as they are, also null; none is made of reasoning_effort."""
    conversation = prepared(
        chat_template_kwargs={"a": None, "b": "auto", "enable_thinking": False},
        reasoning_effort="high",
        documents=[{"title": "t"}],
    )
    wanted = {"a": None, "b": "auto", "enable_thinking": False}
    assert conversation.variables == wanted
    assert conversation.documents == [{"title": "t"}]


@pytest.mark.parametrize("name", ["tools", "documents", "add_generation_prompt"])
def test_variables_the_engine_gives(name: str) -> None:
    """Giving them a second time is an error of the engine's."""
    with pytest.raises(Unrenderable) as caught:
        prepared(chat_template_kwargs={name: None})
    assert caught.value.reason == "bad_field"


def test_media() -> None:
    """Media are not rendered."""
    part = {"type": "image_url", "image_url": {"url": "data:,"}}
    with pytest.raises(Unrenderable) as caught:
        prepared(messages=[{"role": "user", "content": [part]}])
    assert caught.value.reason == "media"


def test_given_ids() -> None:
    """`prompt_token_ids` are the prompt."""
    assert trtllm.forwarded_ids(read_chat(b'{"prompt_token_ids": [1, 2]}')) == [1, 2]
    assert trtllm.forwarded_ids(read_chat(b'{"input_ids": [1, 2]}')) is None
