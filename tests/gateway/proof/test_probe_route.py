"""Routes that tell how a worker renders: what they are asked, and what they answer."""

from typing import Any

import pytest

from gateway.proof.probe_route import ProbeRoute, one_token, only, without
from gateway.workers.engines import sglang, trtllm, vllm
from render.probes import PROBES

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
ROUTE = ProbeRoute(path="/x", ids=("choices", "ids"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"choices": [{"ids": [1, 4294967295]}]}', [1, 4294967295]),
        (b'{"choices": {"ids": []}}', []),
        (b'{"choices": []}', None),
        (b'{"choices": [{"ids": [1, -1]}]}', None),
        (b'{"choices": [{"ids": [true]}]}', None),
        (b'{"choices": [{"ids": [1.0]}]}', None),
        (b'{"choices": [{"ids": [4294967296]}]}', None),
        (b'{"choices": [{"ids": "1"}]}', None),
        (b'{"ids": [1]}', None),
        (b"[1]", None),
        (b"nothing", None),
        (b"\xff", None),
        (b"[" * 10_000, None),
    ],
)
def test_answers(answer: bytes, expected: list[int] | None) -> None:
    """Ids are whole numbers of 32 bits, where the route has them."""
    assert ROUTE.read(answer) == expected


def test_a_chat_is_asked_whole_or_not_at_all() -> None:
    """A field that a route ignores would have it answer another chat's ids."""
    express = only(frozenset({"messages", "tools"}))
    assert express(CHAT) == CHAT
    assert express({**CHAT, "documents": []}) is None


def test_fields_that_chats_do_not_have() -> None:
    """They are left out; the chat itself is not changed."""
    chat = {**CHAT, "add_generation_prompt": False}
    assert without(frozenset({"add_generation_prompt"}))(chat) == CHAT
    assert "add_generation_prompt" in chat


def test_one_token() -> None:
    """A chat that generates asks for as little as there is."""
    asked = one_token(return_token_ids=True)(CHAT)
    assert asked is not None
    assert asked["max_tokens"] == 1
    assert asked["return_token_ids"] is True
    assert asked["messages"] == CHAT["messages"]


@pytest.mark.parametrize("engine", [vllm, sglang, trtllm])
def test_engines(engine: Any) -> None:
    """What generates comes last, and each plain chat can be asked everywhere."""
    generating = [route.generates for route in engine.PROBE_ROUTES]
    assert generating == sorted(generating)
    for route in engine.PROBE_ROUTES:
        assert route.express(PROBES[0].body) is not None


def test_what_tokenize_of_vllm_ignores() -> None:
    """Of the probes, only those are left out that it would answer wrongly."""
    route = next(r for r in vllm.PROBE_ROUTES if r.path == "/tokenize")
    left_out = {p.name for p in PROBES if route.express(p.body) is None}
    assert left_out == {
        "tool_choice_none",
        "effort_low",
        "effort_none",
        "documents",
        "truncation",
        "truncation_right",
    }
