"""Nothing but Unrenderable comes out of a renderer, whatever goes in."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from render import REASONS, Renderer, Unrenderable
from tests.render import models

TEMPLATES = Path(__file__).parent.parent / "data" / "templates"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "bad_json"),
        (b"{", "bad_json"),
        (b"[]", "bad_json"),
        (b"null", "bad_json"),
        (b'"text"', "bad_json"),
        (b"\xff\xfe", "bad_json"),
        (b'{"messages": "\xff"}', "bad_json"),
        (b'{"messages": NaN}', "bad_json"),
        (b'{"messages": [], "x": ' + b"[" * 100_000, "bad_json"),
        (b'{"messages": ' + b"[" * 900 + b"]" * 900 + b"}", "bad_messages"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "bad_json"),
    ],
)
def test_not_json(renderer: Renderer, body: bytes, reason: str) -> None:
    """What is no JSON object, or one too deep, is refused and no more."""
    with pytest.raises(Unrenderable) as caught:
        renderer.render_chat(body)
    assert caught.value.reason == reason


@pytest.mark.parametrize("value", [None, 7, "text", [], object()])
def test_no_body(renderer: Renderer, value: Any) -> None:
    """What is neither bytes nor an object."""
    for render in (
        renderer.render_chat,
        renderer.render_completion,
        renderer.render_responses,
    ):
        with pytest.raises(Unrenderable) as caught:
            render(value)
        assert caught.value.reason == "bad_json"


def test_duplicate_keys_and_big_numbers(renderer: Renderer) -> None:
    """The last of equal keys counts, as with the worker; big integers stay whole."""
    tool = b'{"function": {"name": "f", "parameters": {"max": 123456789012345678901}}}'
    body = (
        b'{"messages": 1, "tools": [%s], "messages": [{"role":"user","content":"x"}]}'
    )
    text = renderer.render_chat(body % tool).text
    assert text is not None
    assert '{"max": 123456789012345678901}' in text


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["user", "system", "assistant", "tool", "developer", "text", "function", "{}"]
    ),
)
KEYS = st.sampled_from(
    [
        "role",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "type",
        "text",
        "uuid",
        "image_url",
        "id",
        "reasoning",
        "reasoning_content",
        "tools",
        "tool_call_id",
        "parameters",
        "description",
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5)
    ),
    max_leaves=20,
)
MESSAGES = st.fixed_dictionaries(
    {"role": LEAVES},
    optional={
        "content": VALUES,
        "tool_calls": st.lists(
            st.fixed_dictionaries({"function": VALUES}, optional={"type": LEAVES})
        )
        | VALUES,
        "name": VALUES,
        "reasoning": VALUES,
    },
)
FIELDS = [
    "tools",
    "documents",
    "chat_template_kwargs",
    "add_generation_prompt",
    "prompt",
    "continue_final_message",
    "reasoning_effort",
    "add_special_tokens",
    "prompt_embeds",
    "truncate_prompt_tokens",
    "truncation_side",
    "kv_transfer_params",
    "chat_template",
]
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=4) | VALUES},
    optional=dict.fromkeys(FIELDS, VALUES),
)


@pytest.fixture(scope="module", params=["qwen3", "tool_use", "parts", "namespace"])
def any_template(
    request: pytest.FixtureRequest,
    vllm: Renderer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Renderer:
    """Renderers whose templates read different things."""
    if request.param == "qwen3":
        return vllm
    path = models.save(tmp_path_factory.mktemp("any"), models.byte_level())
    return Renderer.load(path, chat_template=str(TEMPLATES / f"{request.param}.jinja"))


def _try(renderer: Renderer, body: Any) -> None:
    """Render; nothing but Unrenderable, with a known reason, may come out."""
    for render in (renderer.render_chat, renderer.render_completion):
        try:
            render(body)
        except Unrenderable as error:
            if error.reason not in REASONS:
                raise AssertionError(error.reason) from error


@settings(max_examples=80, deadline=None)
@given(body=BODIES)
def test_any_decoded_body(any_template: Renderer, body: dict[str, Any]) -> None:
    """Fields of any type and shape render or are refused."""
    _try(any_template, body)


@settings(max_examples=40, deadline=None)
@given(body=BODIES, cut=st.integers(0, 400))
def test_any_bytes(any_template: Renderer, body: dict[str, Any], cut: int) -> None:
    """So do bodies as bytes, whole or cut off."""
    raw = json.dumps(body).encode()
    _try(any_template, raw)
    _try(any_template, raw[:cut])


@given(raw=st.binary(max_size=60))
def test_no_json_at_all(any_template: Renderer, raw: bytes) -> None:
    """And anything else."""
    _try(any_template, raw)
