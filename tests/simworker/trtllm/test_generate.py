"""TensorRT-LLM's `/generate`: requests that were rendered elsewhere."""

from typing import Any

import aiohttp
import pytest

from simworker.server import SimWorker

MODEL = "qwen3-demo"
IDS = list(range(1000, 1040))
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


async def post(
    client: aiohttp.ClientSession, worker: SimWorker, path: str, body: Any
) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    async with client.post(worker.url + path, json=body) as response:
        return response.status, await response.json()


def rendered(kind: str, request: Any, **fields: Any) -> dict[str, Any]:
    """A rendered request."""
    body = {"schema_version": 1, "kind": kind, "token_ids": IDS, "request": request}
    return body | fields


async def test_it_runs_as_what_it_was_made_of(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """A chat as a chat with ids, a completion as one of ids."""
    asked = CHAT | {"max_tokens": 6}
    _, ours = await post(client, worker, "/generate", rendered("chat", asked))
    with_ids = asked | {"prompt_token_ids": IDS}
    _, theirs = await post(client, worker, "/v1/chat/completions", with_ids)
    assert ours["choices"] == theirs["choices"]
    assert ours["usage"]["prompt_tokens"] == len(IDS)
    asked = {"model": MODEL, "prompt": "x", "max_tokens": 6}
    _, ours = await post(client, worker, "/generate", rendered("completion", asked))
    with_ids = asked | {"prompt": IDS}
    _, theirs = await post(client, worker, "/v1/completions", with_ids)
    assert ours["choices"] == theirs["choices"]


@pytest.mark.parametrize(
    "body",
    [
        rendered("chat", CHAT, schema_version=2),
        rendered("poem", CHAT),
        rendered("chat", None),
        rendered("chat", CHAT, token_ids=[]),
    ],
)
async def test_what_is_no_rendered_request_is_refused(
    client: aiohttp.ClientSession, worker: SimWorker, body: Any
) -> None:
    """With a 400."""
    status, _ = await post(client, worker, "/generate", body)
    assert status == 400
