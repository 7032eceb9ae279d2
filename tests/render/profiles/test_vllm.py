"""What vLLM hands a template beside single messages, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from render import Renderer, Unrenderable
from render.model import load_model
from render.profiles import vllm
from tests.render import models
from tests.render.profiles.conversations import PLAIN, USER, parts, prepared, shown

HEADER = "x-anthropic-billing-header: cch=1;"


@pytest.mark.parametrize(
    ("role", "content", "left"),
    [
        ("system", f"{HEADER}\nBe kind.\nAlways.", "Be kind.\nAlways."),
        ("system", HEADER, ""),
        ("system", parts(HEADER, "Be kind."), "Be kind."),
        ("system", parts(f"{HEADER}\na", f"b\n{HEADER}"), f"a\nb\n{HEADER}"),
        ("system", [f"{HEADER}\na"], "a"),
        ("system", f" {HEADER}\na", f" {HEADER}\na"),
        ("user", f"{HEADER}\na", f"{HEADER}\na"),
    ],
)
def test_billing_header(role: str, content: Any, left: str) -> None:
    """A system text that starts with a client's billing header loses that line."""
    assert json.loads(shown({"role": role, "content": content}))["content"] == left


def _roles(source: str, *messages: tuple[str, Any]) -> list[tuple[str, Any]]:
    conversation = prepared(
        source, messages=[{"role": role, "content": text} for role, text in messages]
    )
    return [(m["role"], m["content"]) for m in conversation.messages]


def test_developers_become_one_system() -> None:
    """For a template without developers all system messages are merged in front."""
    assert _roles(PLAIN, ("user", "u"), ("developer", "d")) == [
        ("system", "d"),
        ("user", "u"),
    ]
    assert _roles(
        PLAIN, ("system", "s"), ("user", "u"), ("developer", "d"), ("system", "")
    ) == [("system", "s\n\nd"), ("user", "u")]
    looped = "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}"
    assert _roles(looped, ("developer", parts("a", "b")), ("system", "s")) == [
        ("system", "a\nb\n\ns")
    ]
    assert _roles(looped, ("developer", "d")) == [("system", parts("d"))]


def test_system_messages_alone_stay() -> None:
    """Without a developer, or for a template that knows it, nothing is merged."""
    turns = [("user", "u"), ("system", "s")]
    assert _roles(PLAIN, *turns) == turns
    developers = [("user", "u"), ("developer", "d")]
    assert _roles("{{ messages[0].role == 'developer' }}", *developers) == developers


def _variables(source: str, **body: Any) -> dict[str, object]:
    defaults = {"style": "plain", "enable_thinking": True, "quiet": 1}
    return dict(prepared(source, defaults=defaults, **body).variables)


def test_variables() -> None:
    """Only variables the template reads arrive; the request's win over the server's."""
    source = "{{ style }}{{ enable_thinking }}{{ other }}{{ padding }}{{ messages }}"
    kwargs = {"style": "loud", "unread": 1, "padding": 2, "messages": 3}
    assert _variables(source, chat_template_kwargs=kwargs) == {
        "style": "loud",
        "enable_thinking": True,
    }
    unset = {"style": None, "other": "auto"}
    assert _variables(source, chat_template_kwargs=unset) == {
        "style": "plain",
        "enable_thinking": True,
    }
    assert _variables("{{ x }}", chat_template_kwargs={"x": [1, {"a": None}]}) == {
        "x": [1, {"a": None}]
    }


def test_reasoning_effort() -> None:
    """An effort switches thinking on or off, unless the request does so itself."""
    source = "{{ reasoning_effort }}{{ enable_thinking }}"
    assert _variables(source, reasoning_effort="none") == {
        "reasoning_effort": "none",
        "enable_thinking": False,
    }
    assert _variables(source, reasoning_effort="low")["enable_thinking"] is True
    own = {"enable_thinking": True, "reasoning_effort": "x"}
    assert _variables(source, reasoning_effort="none", chat_template_kwargs=own) == {
        "reasoning_effort": "none",
        "enable_thinking": True,
    }
    assert _variables(source, chat_template_kwargs=own)["reasoning_effort"] == "x"


def test_fields_win_over_kwargs() -> None:
    """add_generation_prompt and documents of the body, tools of the kwargs."""
    kwargs: dict[str, Any] = {
        "add_generation_prompt": False,
        "continue_final_message": True,
        "documents": [{"title": "a"}],
        "tools": [{"any": "thing"}],
    }
    conversation = prepared(chat_template_kwargs=kwargs)
    assert conversation.add_generation_prompt
    assert not conversation.continue_final_message
    assert conversation.documents == [{"title": "a"}]
    assert conversation.tools == [{"any": "thing"}]
    documents = [{"text": "b"}]
    conversation = prepared(documents=documents, chat_template_kwargs=kwargs)
    assert conversation.documents == documents


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), (False, False), (None, True), (0, False), ("false", False)],
)
def test_flags(value: object, expected: bool) -> None:
    """Booleans are taken as leniently as the worker takes them."""
    assert prepared(add_generation_prompt=value).add_generation_prompt is expected


@pytest.mark.parametrize(
    ("reason", "body"),
    [
        ("bad_messages", {"messages": None}),
        ("bad_messages", {"messages": []}),
        ("bad_messages", {"messages": "hi"}),
        ("bad_messages", {"messages": {"role": "user"}}),
        ("bad_messages", {"messages": [1]}),
        ("bad_messages", {"messages": [{"content": "x"}]}),
        ("bad_messages", {"messages": [{"role": 1, "content": "x"}]}),
        ("bad_messages", {"messages": [{"role": "user", "content": 5}]}),
        ("bad_messages", {"messages": [{"role": "user", "content": {"a": 1}}]}),
        ("bad_messages", {"messages": [{"role": "user", "content": [5]}]}),
        ("bad_messages", {"messages": [{"role": "user", "content": [{"x": 1}]}]}),
        (
            "bad_messages",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        ),
        (
            "bad_messages",
            {"messages": [{"role": "user", "content": [{"type": ["text"]}]}]},
        ),
        ("bad_messages", {"messages": [{"role": "assistant", "tool_calls": "abc"}]}),
        ("bad_messages", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}),
        (
            "bad_messages",
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
        ),
        ("request_template", {"chat_template": "{{ 1 }}"}),
        ("request_template", {"chat_template_kwargs": {"chat_template": "x"}}),
        ("bad_field", {"chat_template_kwargs": {"tokenize": True}}),
        ("bad_field", {"chat_template_kwargs": [1]}),
        ("bad_field", {"reasoning_effort": 5}),
        ("bad_field", {"tools": "x"}),
        ("bad_field", {"tools": [1]}),
        ("bad_field", {"tools": [{"function": "f"}]}),
        ("bad_field", {"documents": ["x"]}),
        ("bad_field", {"add_generation_prompt": "maybe"}),
        ("bad_field", {"continue_final_message": True}),
    ],
)
def test_refused(reason: str, body: dict[str, Any]) -> None:
    """Bodies no prompt can be made of say why."""
    with pytest.raises(Unrenderable) as caught:
        prepared(**body)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"image_url": "http://x"},
        {"type": "input_audio", "input_audio": {}},
        {"type": "video_url", "video_url": {"url": "x"}, "uuid": "1"},
        {"type": "prompt_embeds", "data": "x"},
        {"type": "file", "file": {}},
    ],
)
def test_media(part: dict[str, Any]) -> None:
    """Content that is not text is not rendered."""
    with pytest.raises(Unrenderable) as caught:
        prepared(messages=[{"role": "user", "content": [*parts("see"), part]}])
    assert caught.value.reason == "media"


@pytest.mark.parametrize(
    ("config", "files", "refused"),
    [
        ({"model_type": "gpt_oss"}, {}, True),
        ({"model_type": "deepseek_v4"}, {}, True),
        ({"model_type": "mistral"}, {"tekken.json": "{}"}, True),
        ({"model_type": "mistral"}, {"tokenizer.model.v3": ""}, True),
        ({"model_type": "mistral"}, {"tokenizer.model": ""}, False),
        ({"model_type": "qwen3"}, {}, False),
        ({"model_type": ["odd"]}, {}, False),
    ],
)
def test_models_vllm_renders_itself(
    tmp_path: Path, config: dict[str, object], files: dict[str, str], refused: bool
) -> None:
    """Where vLLM does not use the Jinja template no chat is rendered; texts are."""
    models.save(tmp_path, models.byte_level(), config=config, files=files)
    assert (vllm.refusal(load_model(tmp_path)) is not None) is refused
    renderer = Renderer.load(tmp_path)
    assert len(renderer.render_completion({"prompt": "hello"})[0]) > 0
    if refused:
        with pytest.raises(Unrenderable) as caught:
            renderer.render_chat({"messages": [USER]})
        assert caught.value.reason == "model_type"
    else:
        assert len(renderer.render_chat({"messages": [USER]})) > 0
