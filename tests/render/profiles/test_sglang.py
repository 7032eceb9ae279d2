"""SGLang's messages, tools and variables, row by row of what 0.5.23 does."""

import json
from typing import Any

import pytest

from render import Renderer, Unrenderable
from render.body import read_chat
from render.conversation import Conversation
from render.profiles import sglang
from render.template import ChatTemplate, ChatTemplates, chat_environment
from tests.render import models

PARTS_TEMPLATE = (
    "{% for message in messages %}{% for p in message.content %}x{% endfor %}"
    "{% endfor %}"
)
USER = {"role": "user", "content": "hi"}
TEXTS = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]


def prepared(source: str = "{{ messages }}", **body: Any) -> Conversation:
    """A body, by default of one message, as the profile prepares it."""
    templates = ChatTemplates(
        given=ChatTemplate(source, chat_environment()), processor=None, tokenizer={}
    )
    chat = read_chat(json.dumps({"messages": [USER], **body}).encode())
    return sglang.prepare(chat, templates, content_format=None, defaults={})


def shown(message: dict[str, Any], source: str = "{{ messages }}") -> str:
    """The message, with the user's after it, as the template gets it."""
    return json.dumps(prepared(source, messages=[message, USER]).messages[0])


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ messages }}", "string"),
        ("{# provision #}{{ messages }}", "openai"),
        ("{# an image #}", "openai"),
        ("{% for m in ms %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% for c in msg['content'] | list %}{% endfor %}", "openai"),
        ("{% for c in other.content %}{% endfor %}", "string"),
        ("{% for c in content %}{% endfor %}", "string"),
    ],
)
def test_content_format(source: str, wanted: str) -> None:
    """By a word in the template, or a loop over the content of three variables."""
    assert sglang.wanted_format(ChatTemplate(source, chat_environment())) == wanted


def test_parts() -> None:
    """Joined with a space, or kept; a string stays a string either way."""
    message = {"role": "system", "content": TEXTS}
    assert shown(message) == '{"role": "system", "content": "a b"}'
    wanted = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    kept = json.dumps({"role": "system", "content": wanted})
    assert shown(message, PARTS_TEMPLATE) == kept
    assert shown(USER, PARTS_TEMPLATE) == json.dumps(USER)


def test_content_none() -> None:
    """No content is an empty string."""
    assert shown({"role": "assistant", "content": None}) == (
        '{"role": "assistant", "content": ""}'
    )


def test_tool_messages() -> None:
    """All text: one string, also where parts are wanted."""
    message = {"role": "tool", "content": TEXTS, "tool_call_id": "c", "name": None}
    assert shown(message) == '{"role": "tool", "content": "a b", "tool_call_id": "c"}'
    wanted = '{"role": "tool", "tool_call_id": "c", "content": "a b"}'
    assert shown(message, PARTS_TEMPLATE) == wanted


def test_keys_kept() -> None:
    """The message model's keys in its order; of the user's only role and content."""
    message = {
        "role": "Assistant",
        "reasoning_content": "r",
        "reasoning": "dropped",
        "name": "n",
        "content": "a",
        "alien": 1,
    }
    wanted = {"role": "assistant", "content": "a", "name": "n"}
    assert shown(message) == json.dumps({**wanted, "reasoning_content": "r"})
    assert shown({**USER, "name": "ada"}) == json.dumps(USER)


def test_roles() -> None:
    """Roles the engine does not know are refused."""
    for role in ("alien", "User"):
        with pytest.raises(Unrenderable) as caught:
            prepared(messages=[{"role": role, "content": "x"}])
        assert caught.value.reason == "bad_messages"


def test_tool_calls() -> None:
    """Arguments become an object; the model's keys are all there."""
    call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    (shown_call,) = prepared(messages=[message, USER]).messages[0]["tool_calls"]
    function = {"name": "f", "arguments": {}}
    wanted = {"id": "c", "index": None, "type": "function", "function": function}
    assert json.dumps(shown_call) == json.dumps(wanted)


@pytest.mark.parametrize("arguments", ["{not json", "[1]", ""])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """They are refused, where vLLM takes them as empty."""
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    with pytest.raises(Unrenderable) as caught:
        prepared(messages=[message, USER])
    assert caught.value.reason == "bad_messages"


def test_a_last_message_of_the_assistant() -> None:
    """It is shown as the user's, or encoded after the prompt it opens."""
    messages = [USER, {"role": "assistant", "content": "One", "name": "n"}]
    conversation = prepared(messages=messages)
    assert conversation.messages == [USER, {"role": "user", "content": "One"}]
    assert conversation.add_generation_prompt
    conversation = prepared(
        messages=messages, continue_final_message=True, add_generation_prompt=False
    )
    assert conversation.messages == [USER]
    assert conversation.appended == "One"
    assert conversation.add_generation_prompt


def test_a_continued_message_is_encoded_apart(tmp_path: Any) -> None:
    """Its ids follow the prompt's; together the texts would be other tokens."""
    renderer = Renderer.load(
        models.save(tmp_path, models.byte_level()), profile="sglang"
    )
    messages = [USER, {"role": "assistant", "content": "hello world"}]
    whole = renderer.render_chat({"messages": messages, "continue_final_message": True})
    opened = renderer.render_chat({"messages": [USER]})
    (own,) = renderer.render_completion({"prompt": "hello world"})
    assert whole.token_ids == opened.token_ids + own.token_ids
    assert whole.text == f"{opened.text}hello world"


def test_tools() -> None:
    """The client's order of keys; absent ones are null, the last."""
    tool = {"function": {"x": 1, "parameters": {"p": 1}, "name": "f"}, "y": 2}
    (shown_tool,) = prepared(tools=[tool]).tools or []
    function: dict[str, Any]
    function = {"parameters": {"p": 1}, "name": "f", "description": None}
    wanted = {"type": "function", "function": function, "defer_loading": None}
    assert json.dumps(shown_tool) == json.dumps(wanted)
    strict = {"function": {"strict": True, "name": "f", "description": "d"}}
    (shown_tool,) = prepared(tools=[strict]).tools or []
    function = {"strict": True, "name": "f", "description": "d", "parameters": None}
    assert json.dumps(shown_tool["function"]) == json.dumps(function)


def test_tools_that_may_be_called() -> None:
    """None of them, or the named one only."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    assert prepared(tools=tools, tool_choice="none").tools is None
    named = {"type": "function", "function": {"name": "g"}}
    (tool,) = prepared(tools=tools, tool_choice=named).tools or []
    assert tool["function"]["name"] == "g"
    assert len(prepared(tools=tools, tool_choice="required").tools or []) == 2
    assert prepared(tools=[]).tools is None


def test_bare_functions() -> None:
    """A template that fails with wrapped tools is given the functions."""
    source = "{% for t in tools %}{{ t.name + '!' }}{% endfor %}"
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert prepared(source, tools=tools).text({}) == "f!"


@pytest.mark.parametrize(
    ("body", "variables"),
    [
        ({}, {}),
        (
            {"reasoning_effort": "none"},
            {"thinking": False, "enable_thinking": False, "reasoning_effort": "none"},
        ),
        (
            {"reasoning": {"effort": "high"}},
            {"thinking": True, "enable_thinking": True, "reasoning_effort": "high"},
        ),
        (
            {"reasoning": {"enabled": "yes"}},
            {"thinking": True, "enable_thinking": True},
        ),
        (
            {
                "reasoning_effort": "low",
                "chat_template_kwargs": {"thinking": False, "x": None},
            },
            {
                "thinking": False,
                "x": None,
                "enable_thinking": True,
                "reasoning_effort": "low",
            },
        ),
    ],
)
def test_reasoning_options(body: dict[str, Any], variables: dict[str, Any]) -> None:
    """They set both names of the switch unless the request does; the rest passes."""
    assert prepared(**body).variables == variables


def test_given_ids() -> None:
    """`input_ids` are the prompt."""
    assert sglang.forwarded_ids(read_chat(b'{"input_ids": [1, 2]}')) == [1, 2]
    assert sglang.forwarded_ids(read_chat(b'{"prompt_token_ids": [1]}')) is None
