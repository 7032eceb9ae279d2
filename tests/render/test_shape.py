"""Which rules of an engine a chat body needs, and which bodies are never sent ids."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from render.errors import REASONS
from render.fields import CHAT
from render.shape import FEATURES, NEVER, never_for, shape_of
from render.shape_fields import OWN_IDS, READ, UNSEEN

USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "yes"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "5"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a": [1, None]}}}
PART = {"type": "text", "text": "hello"}


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    """A body of these messages, or of one user's."""
    return {"model": "m", "messages": list(messages) or [USER], **fields}


def call(**fields: Any) -> dict[str, Any]:
    """A chat in which a tool was called, by a call with these fields."""
    return chat({**CALLS, "tool_calls": [{**CALL, **fields}]}, RESULT)


PLAIN = [
    chat(),
    chat(USER, ANSWER, USER),
    chat(temperature=0.5, stream=True, stream_options={"include_usage": True}),
    chat(stop=["x"], response_format={"type": "json_object"}, seed=1, user="u"),
    chat(vllm_xargs={"a": 1}, rid="r", lora_request={}, cache_salt="s", priority=1),
    chat(echo=False, add_generation_prompt=True, continue_final_message=False),
    chat(tool_choice="none"),
    chat(tool_choice="auto"),
    chat(chat_template=None, tools=None, documents=None, nobody_knows=None),
    chat(chat_template_kwargs={}, mm_processor_kwargs={}, media_io_kwargs=None),
    chat(kv_transfer_params={"remote_host": "h"}),
    chat(kv_transfer_params=None),
    chat(USER, {**ANSWER, "refusal": None, "annotations": [], "audio": None}, USER),
    chat({**USER, "name": None}),
]


@pytest.mark.parametrize("body", PLAIN)
def test_a_plain_chat_has_no_features(body: dict[str, Any]) -> None:
    """Users and assistants in texts; sampling does not count, nor does null."""
    shape = shape_of(body)
    assert (shape.features, shape.never) == (frozenset(), None)


FEATURED: list[tuple[str, dict[str, Any]]] = [
    ("system", chat({"role": "system", "content": "s"}, USER)),
    ("system late_system", chat(USER, {"role": "system", "content": "s"}, USER)),
    ("developer", chat({"role": "developer", "content": "s"}, USER)),
    (
        "system billing_header",
        chat({"role": "system", "content": "x-anthropic-billing-header: a\nb"}, USER),
    ),
    (
        "system parts billing_header",
        chat(
            {
                "role": "system",
                "content": [
                    PART,
                    {"type": "text", "text": "x-anthropic-billing-header"},
                ],
            },
            USER,
        ),
    ),
    ("tools", chat(tools=[TOOL], tool_choice="required")),
    ("tools", chat(tools=[])),
    (
        "tools strict_tools",
        chat(tools=[{**TOOL, "function": {"name": "f", "strict": False}}]),
    ),
    ("tools tool_choice_none", chat(tools=[TOOL], tool_choice="none")),
    ("tool_turns empty_content", chat(USER, CALLS, RESULT)),
    ("tool_turns empty_content", call(index=0)),
    ("tool_turns", chat(USER, {**ANSWER, "tool_calls": []}, USER)),
    ("tool_turns tool_parts", chat(USER, {**RESULT, "content": [PART]})),
    ("parts", chat({"role": "user", "content": [PART, PART]})),
    ("parts empty_content", chat({"role": "user", "content": []})),
    ("empty_content", chat({"role": "user", "content": ""}, ANSWER, USER)),
    ("empty_content", chat(USER, {"role": "assistant"}, USER)),
    ("name", chat({**USER, "name": "ann"})),
    ("reasoning", chat(USER, {**ANSWER, "reasoning": "so"}, USER)),
    ("reasoning", chat(USER, {**ANSWER, "reasoning_content": "so"}, USER)),
    (
        "reasoning",
        chat(USER, {**ANSWER, "reasoning_content": "so", "reasoning": "so"}, USER),
    ),
    ("template_kwargs", chat(chat_template_kwargs={"enable_thinking": False})),
    ("reasoning_effort", chat(reasoning_effort="low")),
    ("documents", chat(documents=[{"text": "t"}])),
    ("truncation", chat(truncate_prompt_tokens=5)),
    ("truncation", chat(truncation_side="left")),
    ("special_tokens", chat(add_special_tokens=True)),
    (
        "continue no_generation_prompt",
        chat(USER, ANSWER, continue_final_message=True, add_generation_prompt=False),
    ),
    ("no_generation_prompt", chat(add_generation_prompt="false")),
    ("assistant_last", chat(USER, ANSWER)),
]


@pytest.mark.parametrize(("features", "body"), FEATURED)
def test_features(features: str, body: dict[str, Any]) -> None:
    """Each has its word."""
    shape = shape_of(body)
    assert (shape.features, shape.never) == (frozenset(features.split()), None)


def test_every_feature_has_a_case() -> None:
    """No word is left that no body has."""
    assert {w for words, _ in FEATURED for w in words.split()} == FEATURES


NAMED = {"type": "function", "function": {"name": "f"}}
IMAGE = {"type": "image_url", "image_url": {"url": "u"}}
NEVER_SENT: list[tuple[str, dict[str, Any]]] = [
    ("named_tool_choice", chat(tools=[TOOL], tool_choice=NAMED)),
    ("named_tool_choice", chat(tool_choice={"type": "allowed_tools"})),
    ("echo", chat(echo=True)),
    ("echo", chat(echo="yes")),
    ("media", chat({"role": "user", "content": [PART, IMAGE]})),
    ("media", chat({"role": "user", "content": [{"type": "input_audio"}]})),
    ("media", chat({"role": "user", "content": [{**PART, "image_url": "u"}]})),
    ("media", chat(mm_processor_kwargs={"a": 1})),
    ("own_ids", chat(prompt_token_ids=[1])),
    ("own_ids", chat(prompt_token_ids_b64="AQAAAA==")),
    ("own_ids", chat(input_ids=[])),
    ("own_ids", chat(kv_transfer_params={"prompt_token_ids": [1]})),
    ("request_template", chat(chat_template="{{ 1 }}")),
    ("truncation", chat(truncate_prompt_tokens=-1)),
    ("truncation", chat(truncate_prompt_tokens="5")),
    # Unknown at the top, in messages, parts, tools, calls.
    ("unknown_field", chat(verbosity="low")),
    ("unknown_field", chat(injected_chat_template_kwargs=["a"])),
    ("unknown_field", chat(functions=[{"name": "f"}])),
    ("unknown_field", chat(reasoning={"effort": "low"})),
    ("unknown_field", chat(return_prompt_text=True)),
    ("unknown_field", chat({**USER, "mood": "gay"})),
    ("unknown_field", chat({**USER, "reasoning": "so"})),
    ("unknown_field", chat({**USER, "tool_calls": [CALL]})),
    (
        "unknown_field",
        chat(USER, {**ANSWER, "reasoning": "a", "reasoning_content": ""}),
    ),
    ("unknown_field", chat(USER, {**ANSWER, "audio": {"id": "a"}}, USER)),
    ("unknown_field", chat({"role": "developer", "content": "s", "tools": [TOOL]})),
    (
        "unknown_field",
        chat({"role": "user", "content": [{**PART, "cache_control": {}}]}),
    ),
    ("unknown_field", chat({"role": "user", "content": [{**PART, "mark": None}]})),
    ("unknown_field", chat({"role": "user", "content": ["text"]})),
    ("unknown_field", chat({"role": "user", "content": [{"type": "input_text"}]})),
    ("unknown_field", chat({"role": "user", "content": [{"type": "text"}]})),
    ("unknown_field", chat({"role": "user", "content": {"a": 1}})),
    ("unknown_field", chat({"role": "User", "content": "x"})),
    ("unknown_field", chat({"role": "function", "content": "x"})),
    ("unknown_field", chat({"content": "x"})),
    ("unknown_field", chat("text")),
    ("unknown_field", {"messages": []}),
    ("unknown_field", {"messages": "text"}),
    ("unknown_field", {}),
    ("unknown_field", chat(tools=[{**TOOL, "cache_control": {}}])),
    (
        "unknown_field",
        chat(tools=[{"type": "function", "function": {"name": "f", "x": 1}}]),
    ),
    ("unknown_field", chat(tools=[{"type": "web_search"}])),
    ("unknown_field", chat(tools=["all"])),
    ("unknown_field", chat(tools={"f": TOOL})),
    ("unknown_field", chat(tool_choice="sometimes")),
    ("unknown_field", chat(tool_choice=["auto"])),
    ("unknown_field", call(extra=1)),
    ("unknown_field", call(function={"name": "f", "arguments": {}})),
    ("unknown_field", call(function="f")),
    ("unknown_field", call(type="custom")),
    ("unknown_field", chat({**CALLS, "tool_calls": {}})),
    ("unknown_field", chat(chat_template_kwargs=[1])),
    ("unknown_field", chat(chat_template_kwargs={"tools": []})),
    ("unknown_field", chat(chat_template_kwargs={"tokenize": False})),
    ("unknown_field", chat(kv_transfer_params=[])),
    ("unknown_field", chat(add_generation_prompt="maybe")),
    ("unknown_field", chat(echo=[])),
]


@pytest.mark.parametrize(("never", "body"), NEVER_SENT)
def test_never_sent(never: str, body: dict[str, Any]) -> None:
    """Whatever was proven; the reason is a fixed word."""
    assert shape_of(body).never == never
    assert never in NEVER


def test_a_field_of_sglang_alone() -> None:
    """The reasoning object is one of its chats; elsewhere it is not known."""
    body = chat(reasoning={"effort": "low"})
    assert shape_of(body, "sglang").features == {"reasoning_effort"}
    assert shape_of(body, "trtllm").never == "unknown_field"


def test_models_whose_usage_would_be_wrong() -> None:
    """Kimi K3 counts given ids otherwise than rendered ones."""
    assert never_for("kimi_k3") == "usage"
    assert never_for("qwen3") is never_for(None) is None


def test_what_is_known_of_a_field_is_one_thing() -> None:
    """A field is unseen by templates, has its rule, or brings ids; of vLLM's all are
    known, but for those that ask for what the worker rendered."""
    assert UNSEEN.isdisjoint(READ | OWN_IDS)
    assert READ.isdisjoint(OWN_IDS)
    about_rendering = {
        "return_prompt_text",
        "return_token_offsets",
        "ec_transfer_params",
    }
    assert set(CHAT) - UNSEEN - READ == about_rendering
    assert not set(NEVER) & set(REASONS) - {"media", "request_template"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(sorted(READ | OWN_IDS | {"model", "temperature", "other"}))
MESSAGES = st.lists(
    st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "reasoning", "name"]),
        JSON | st.sampled_from(["user", "assistant", "system", "tool"]),
    )
)


@given(st.dictionaries(NAMES, JSON | MESSAGES))
def test_any_body_has_a_shape(body: Mapping[str, Any]) -> None:
    """Nothing a client sends raises, and all words are known ones."""
    for profile in ("vllm", "sglang", "trtllm"):
        shape = shape_of(body, profile)
        assert shape.features <= FEATURES
        assert shape.never is None or shape.never in NEVER


@given(MESSAGES, st.sampled_from(sorted(FEATURES)))
def test_an_unknown_field_is_never_passed_over(messages: Any, name: str) -> None:
    """Whatever else is in a body, a field that is not known keeps ids back."""
    assert shape_of({"messages": messages, f"x_{name}": 1}).never is not None
