"""Every chat and completion a real vLLM 0.32 was asked gets the ids it used."""

import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvindex.blocks import unpack_ids
from render import Renderer, Unrenderable

DATA = Path(__file__).parent.parent / "data" / "vllm"
FILES = (
    "w1_chat_cases",
    "w1_other_cases",
    "render_server_cases",
    "w1_token_forwarding_cases",
)
ROUTES = ("/v1/chat/completions", "/v1/completions")

Exchange = dict[str, Any]


def exchanges() -> Iterator[Any]:
    """Each chat and completion exchange of the captures as a test parameter."""
    for file in FILES:
        cases = json.loads(gzip.decompress((DATA / f"{file}.json.gz").read_bytes()))
        for name, case in cases["cases"].items():
            steps = {"": case} if "path" in case else case
            for step, exchange in steps.items():
                if isinstance(exchange, dict) and _is_prompt(exchange):
                    yield pytest.param(exchange, id=f"{file}-{name}-{step}")


def _is_prompt(exchange: Exchange) -> bool:
    path = exchange["path"].removesuffix("/render")
    return path in ROUTES and isinstance(exchange["request"], dict)


def _body(exchange: Exchange) -> bytes:
    request = exchange["request"]
    raw: str = request.get("__raw__") or json.dumps(request)
    return raw.encode()


def _captured_ids(response: Any) -> list[list[int]] | None:
    """The prompt's ids in an answer: rendered, whole or streamed; None if not told."""
    if isinstance(response, list):
        return [item["token_ids"] for item in response]
    if "token_ids" in response:
        return [response["token_ids"]]
    if "__text__" in response:
        events = (
            json.loads(line.removeprefix("data: "))
            for line in response["__text__"].splitlines()
            if line.startswith("data: {")
        )
        found = [_captured_ids(event) for event in events]
        return next((ids for ids in found if ids), None)
    if response.get("prompt_token_ids"):
        return [response["prompt_token_ids"]]
    choices = response.get("choices") or [{}]
    ids = [choice.get("prompt_token_ids") for choice in choices]
    return ids if all(ids) else None


def _rendered(renderer: Renderer, exchange: Exchange) -> list[list[int]]:
    body = _body(exchange)
    if exchange["path"].startswith("/v1/chat"):
        rendered = [renderer.render_chat(body)]
    else:
        rendered = renderer.render_completion(body)
    assert all(len(r) == len(unpack_ids(r.token_ids)) for r in rendered)
    return [unpack_ids(r.token_ids) for r in rendered]


def test_the_captures_are_all_there() -> None:
    """The files hold as many exchanges as they did when they were captured."""
    answered = [p.values[0] for p in exchanges() if p.values[0]["status"] == 200]
    told = [e for e in answered if _captured_ids(e["response"])]
    assert (len(list(exchanges())), len(answered), len(told)) == (148, 87, 84)


@pytest.mark.parametrize("exchange", list(exchanges()))
def test_captured_prompt(renderer: Renderer, exchange: Exchange) -> None:
    """A request the worker took has the worker's ids; no other one does harm."""
    if exchange["status"] != 200:
        with contextlib.suppress(Unrenderable):
            _rendered(renderer, exchange)
        return
    rendered = _rendered(renderer, exchange)
    captured = _captured_ids(exchange["response"])
    if captured is not None:
        # Several choices of one prompt repeat it.
        assert all(ids in rendered for ids in captured)
        assert all(ids in captured for ids in rendered)


REFUSED = {
    "19_request_chat_template": "request_template",
    "e03_missing_messages": "bad_messages",
    "e04_messages_string": "bad_messages",
    "e07_image_on_text_model": "media",
    "e15_bad_template": "request_template",
    "e21_content_part_unknown_type": "bad_messages",
    "c05_empty_str": "bad_prompt",
    "c10_neg_id": "bad_prompt",
    "c14_mixed": "bad_prompt",
    "bad_json": "bad_json",
    "array": "bad_json",
}


@pytest.mark.parametrize(("case", "reason"), list(REFUSED.items()))
def test_captured_errors(renderer: Renderer, case: str, reason: str) -> None:
    """What cannot be rendered says why, with a reason of the fixed set."""
    found = [p.values[0] for p in exchanges() if p.id and f"-{case}-" in f"{p.id}-"]
    assert found
    for exchange in found:
        with pytest.raises(Unrenderable) as caught:
            _rendered(renderer, exchange)
        assert caught.value.reason == reason
