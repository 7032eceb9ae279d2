"""Whatever a body holds, it is rendered or refused: nothing else is raised."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from render import Renderer, RenderOptions, RenderRefused, RenderService
from render.fields import CHAT, COMPLETION, RESPONSES
from tests.render import models

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "auto", "none", "user", "assistant", "text", "/", "-1"])
    | st.text(max_size=8)
)
KEY_NAMES = """
    type text role content name function arguments json_schema schema format effort
    prompt_token_ids tool_calls tools id chat_template tokenize enable_thinking 1
    summary image_url
"""
ITEM_NAMES = """
    type role content call_id name arguments output summary status encrypted_content
"""
KEYS = st.sampled_from(KEY_NAMES.split())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool"]) | VALUES},
        optional={
            "content": VALUES,
            "tool_calls": VALUES,
            "reasoning": VALUES,
            "name": VALUES,
            "tools": VALUES,
        },
    ),
    max_size=3,
)
ITEMS = st.lists(
    st.dictionaries(
        st.sampled_from(ITEM_NAMES.split()),
        st.sampled_from(
            ["message", "function_call", "function_call_output", "reasoning"]
        )
        | VALUES,
        max_size=4,
    ),
    max_size=3,
)
TOOL = {"type": "function", "name": "f", "function": {"name": "f"}}


def _bodies(
    names: list[str], **known: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    rest = st.dictionaries(st.sampled_from(names), VALUES, max_size=4)
    return st.builds(lambda a, b: {**b, **a}, st.fixed_dictionaries(known), rest)


TOOLS = st.sampled_from([None, [TOOL]]) | VALUES
CHATS = _bodies([*CHAT], messages=MESSAGES | VALUES, tools=TOOLS)
COMPLETIONS = _bodies([*COMPLETION], prompt=VALUES | st.just("a"))
RESPONSES_ = _bodies([*RESPONSES], input=ITEMS | VALUES, tools=TOOLS)


@pytest.fixture(scope="module", params=["vllm", "trtllm", "sglang"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> RenderService:
    """A small model's service, with all that a request may ask for switched on."""
    path = models.save(tmp_path_factory.mktemp("tiny"), models.byte_level())
    renderer = Renderer.load(Path(path), profile=request.param, encoder="tokenizers")
    options = RenderOptions(
        served_model_names=("tiny",),
        max_model_len=200,
        reasoning_parser="qwen3",
        tool_call_parser="hermes",
        trust_request_chat_template=True,
    )
    return RenderService(renderer, options)


def _ask(service: RenderService, route: str, body: bytes) -> None:
    try:
        answer = getattr(service, route)(body)
    except RenderRefused as refused:
        answer = refused.body()
        code = refused.status
    else:
        code = 200
    assert code in (200, 400, 404, 501)
    msgspec.json.encode(answer)


SETTINGS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SETTINGS
@given(body=CHATS)
def test_chats(service: RenderService, body: Any) -> None:
    """Chats with anything in any field; the same body is tokenized."""
    _ask(service, "chat", json.dumps(body).encode())
    _ask(service, "tokenize", json.dumps(body).encode())


@SETTINGS
@given(body=COMPLETIONS)
def test_completions(service: RenderService, body: Any) -> None:
    """Completions with anything in any field."""
    _ask(service, "completions", json.dumps(body).encode())
    _ask(service, "tokenize", json.dumps(body).encode())


@SETTINGS
@given(body=RESPONSES_)
def test_responses(service: RenderService, body: Any) -> None:
    """Responses with anything in any field and item."""
    _ask(service, "responses", json.dumps(body).encode())


@SETTINGS
@given(tokens=VALUES)
def test_detokenize(service: RenderService, tokens: Any) -> None:
    """Anything for tokens."""
    _ask(service, "detokenize", json.dumps({"tokens": tokens}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"null",
        b"\xff\xfe",
        b'"\\ud800"',
        b'{"messages": "\\ud800"}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"messages": [{"role": "user", "content": "\\u0000"}]}',
    ],
)
@pytest.mark.parametrize(
    "route", ["chat", "completions", "responses", "tokenize", "detokenize"]
)
def test_bytes(service: RenderService, route: str, body: bytes) -> None:
    """Bytes that are no JSON, or too much of it."""
    _ask(service, route, body)


@pytest.mark.parametrize("depth", [100, 150, 500, 900, 980, 1000])
@pytest.mark.parametrize(
    "field", ["response_format", "tools", "messages", "chat_template_kwargs", "input"]
)
def test_deep_bodies(service: RenderService, field: str, depth: int) -> None:
    """Nested as deeply as the reader takes them, in fields that are printed."""
    deep = b'{"type": "structural_tag", "a": ' * depth + b"1" + b"}" * depth
    known = b'"messages": [{"role": "user", "content": "a"}], "prompt": "a", '
    value = b"[%s]" % deep if field in ("tools", "messages", "input") else deep
    for route in ("chat", "completions", "responses", "tokenize"):
        _ask(service, route, b'{%s"%s": %s}' % (known, field.encode(), value))
