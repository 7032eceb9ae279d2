"""Bodies of derender requests with anything in any place: refused, never a crash."""

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from render import Renderer, RenderOptions, RenderRefused, RenderService

JUNK: list[Any] = [None, True, -1, 1.5, "x", "", [], {}, [None], {"a": 1}, 2**70, [[]]]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
CHOICES = ["auto", "required", "none", {"type": "function", "function": {"name": "f"}}]


@pytest.fixture(scope="module")
def services(vllm: Renderer) -> list[RenderService]:
    """With parsers, and without."""
    parsers: list[dict[str, Any]] = [
        {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
        {},
    ]
    return [
        RenderService(vllm, RenderOptions(served_model_names=("m",), **one))
        for one in parsers
    ]


def choice(choose: random.Random) -> dict[str, Any]:
    """A choice of special tokens and others."""
    ids = [choose.choice([5, 9707, 151_657, 151_658, 151_668]) for _ in range(12)]
    top = {"token_id": 5, "logprob": -1.0}
    entries = [{"token_id": i, "logprob": -1.0, "top_logprobs": [top]} for i in ids]
    return {
        "index": 0,
        "token_ids": ids,
        "finish_reason": choose.choice(["stop", "length", None]),
        "stop_reason": choose.choice([None, 5, "x"]),
        "logprobs": choose.choice([None, {"content": entries}]),
    }


def body(choose: random.Random, kind: str) -> dict[str, Any]:
    """A good body."""
    asked = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": TOOLS,
        "tool_choice": choose.choice(CHOICES),
        "stop": choose.choice([None, "a", ["a", "!"]]),
        "min_tokens": choose.choice([0, 3]),
    }
    counts = {"prompt_tokens": 3, "completion_tokens": 2}
    generated = {"request_id": "r", "choices": [choice(choose)], "usage": counts}
    state = {"output_token_ids": [1, 2, 3], "output_chunk_lens": [1, 2]}
    window = {"prev_tokens": ["a", "b"], "read_offset": 1}
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"generate_response": generated, "chat_request": asked},
        "completions": {"generate_responses": [generated, generated]},
        "step": {
            "stream": True,
            "generate_chunk": generated,
            "chat_request": asked,
            "prompt_token_ids": [1, 2],
            "stream_state": choose.choice([None, state, window]),
        },
    }
    return bodies[kind]


def spoilt(value: Any, choose: random.Random) -> Any:
    """The same with junk in some places, and some fields left out."""
    if choose.random() < 0.03:
        return choose.choice(JUNK)
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if choose.random() > 0.01}
        return {k: spoilt(v, choose) for k, v in kept.items()}
    return [spoilt(v, choose) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["chat", "completions", "step"])
@given(choose=st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None, phases=[Phase.generate])
def test_spoilt_bodies(
    services: list[RenderService], kind: str, choose: random.Random
) -> None:
    """An answer or a refusal, and JSON each."""
    sent = json.dumps(spoilt(body(choose, kind), choose)).encode()
    for service in services:
        calls: list[Callable[[bytes], Any]] = [service.derender_chat]
        if kind != "chat":
            calls = [service.derender_completions, *calls]
        for call in calls:
            assert msgspec.json.encode(answered(call, sent))


def answered(call: Callable[[bytes], Any], sent: bytes) -> Any:
    """The answer, or the error in its place."""
    try:
        return call(sent)
    except RenderRefused as refused:
        return refused.body()
