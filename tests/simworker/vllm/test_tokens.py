"""`/tokenize` and `/detokenize` as captured."""

from typing import Any

import aiohttp
import pytest

from simworker.server import SimWorker
from tests.simworker import captures


async def test_tokenize(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """The captured answers to a chat and to a plain prompt, and back to text."""
    cases = captures.cases("w1_other_cases")
    for name in ("t02_chat", "t03_nospecial", "d07_tokenize_tool"):
        body = cases[name]["request"] | {"model": "qwen3-demo"}
        expected = cases[name]["response"] | {"max_model_len": 40960}
        async with client.post(worker.url + "/tokenize", json=body) as response:
            assert await response.json() == expected
        tokens = {"tokens": expected["tokens"]}
        async with client.post(worker.url + "/detokenize", json=tokens) as response:
            text = (await response.json())["prompt"]
        if "prompt" in body:
            assert text == body["prompt"]
        else:
            assert text.startswith("<|im_start|>user\nhi<|im_end|>")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "body.prompt"),
        ("/tokenize", {"model": "nope", "prompt": "x"}, "model"),
        ("/detokenize", {}, "body.tokens"),
        ("/detokenize", {"tokens": "x"}, "body.tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "body.tokens.1"),
    ],
)
async def test_tokenize_refuses(
    client: aiohttp.ClientSession, worker: SimWorker, path: str, body: Any, param: str
) -> None:
    """What is missing or of the wrong type is named."""
    async with client.post(worker.url + path, json=body) as response:
        assert response.status in (400, 404)
        assert (await response.json())["error"]["param"] == param


@pytest.mark.parametrize(
    "ignored",
    [
        {"reasoning_effort": "none"},
        {"truncate_prompt_tokens": 3},
        {"documents": [{"text": "x"}]},
        {"tool_choice": "none"},
    ],
)
async def test_what_it_does_not_know_is_ignored(
    client: aiohttp.ClientSession, worker: SimWorker, ignored: dict[str, Any]
) -> None:
    """As a real worker's: fields of chats that it does not read change nothing."""
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    answers = []
    for body in (chat, chat | ignored):
        async with client.post(worker.url + "/tokenize", json=body) as response:
            assert response.status == 200
            answers.append(await response.json())
    assert answers[0] == answers[1]
