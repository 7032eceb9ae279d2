"""Field reports about bodies: errors as long as what was asked, lengths of others."""

import json
from typing import Any

import pytest

from tests.gateway.forwarding_rig import chat, prove
from tests.gateway.tokens.rig import TOKENS
from tests.proxy.raw import LAST_CHUNK, RawClient, RawWorker, answering, json_answer
from tests.proxy.raw import chunk as framed
from tests.running import MODEL, Running, StartGateway, StartWorker

MODELS = {"data": [{"id": MODEL, "owned_by": "vllm", "root": MODEL}]}
LISTING = json_answer(json.dumps(MODELS).encode())
ITEMS = 12_000
USER = {"role": "user", "content": "hi"}
BAD: dict[str, dict[str, Any]] = {
    "roles": {"messages": [{"role": 7, "content": "words"}] * ITEMS},
    "no messages": {"messages": ["words"] * ITEMS},
    "parts": {"messages": [{"role": "user", "content": [{"type": "odd"}] * ITEMS}]},
    "tools": {"messages": [USER], "tools": [{"odd": "words"}] * ITEMS},
    "biases": {"messages": [USER], "logit_bias": {f"odd {n}": 1 for n in range(ITEMS)}},
    "model": {"messages": [USER], "model": "words" * ITEMS},
    "limit": {"messages": [USER], "max_tokens": 10**4_000},
}
PATHS = ("/v1/chat/completions", "/v1/chat/completions/render", "/gateway/explain")


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_body_is_answered_in_a_few_words(
    start_worker: StartWorker, start_gateway: StartGateway, kind: str
) -> None:
    """Of 12,000 bad items not all are told: what the gateway itself says is short.

    Its workers take token ids only, so it is not they who refuse a chat.
    vllm-project/vllm#49239
    """
    gateway = await start_gateway(await start_worker(TOKENS))
    statuses = [await _status(gateway, path, BAD[kind]) for path in PATHS]
    refused = 404 if kind == "model" else 400
    assert statuses[:2] == [refused, refused]
    assert statuses[2] in (200, 400)  # it may tell why this would not be rendered


async def _status(gateway: Running, path: str, body: dict[str, Any]) -> int:
    """The status of an answer that is short."""
    sent = {"model": MODEL} | body
    async with gateway.client.post(gateway.url + path, json=sent) as response:
        assert len(await response.read()) <= 4 * 1024
        return response.status


@pytest.mark.usefixtures("proofs_by_hand")
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_with_ids_has_a_length_of_its_own(
    start_gateway: StartGateway, *, chunked: bool
) -> None:
    """Neither the client's length nor its chunks are said of it.

    radixark/miles#851
    """
    asked = json.dumps(chat()).encode()
    async with RawWorker(answering(LISTING)) as worker:
        gateway = await start_gateway(worker.url)
        prove(gateway)
        async with RawClient(gateway.port) as client:
            if chunked:
                await client.send(
                    b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n"
                    b"Content-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n"
                )
                await client.send(framed(asked) + LAST_CHUNK)
            else:
                await client.post(asked)
            assert (await client.answer())[0].startswith(b"HTTP/1.1 200 ")
        (got,) = [one for one in worker.requests if one.startswith(b"POST")]
    head, _, body = got.partition(b"\r\n\r\n")
    assert len(body) > len(asked)
    assert "prompt_token_ids" in json.loads(body)["kv_transfer_params"]
    assert head.lower().count(b"content-length:") == 1
    assert b"\r\nContent-Length: %d" % len(body) in head
    assert b"transfer-encoding" not in head.lower()


@pytest.mark.parametrize("words", [1, 5_000])
async def test_a_body_of_ids_has_a_length_of_its_own(
    start_worker: StartWorker, start_gateway: StartGateway, words: int
) -> None:
    """In place of a chat, longer or shorter than it; and so has the answer.

    radixark/miles#851
    """
    gateway = await start_gateway(await start_worker(TOKENS))
    messages = [{"role": "user", "content": "hi " + "     " * words}]
    for _ in range(2):  # over one connection: a wrong length would break the second
        answer = await gateway.chat(messages)
        assert answer.text
        length = int(answer.headers["Content-Length"])
        assert length > len(answer.text)
