"""Refused requests: the statuses, texts and envelopes of a real vLLM."""

import json
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker import captures
from tests.simworker.conftest import FAST

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def worker(start_worker: StartWorker) -> SimWorker:
    """A worker named and sized as the captured one."""
    return await start_worker(
        msgspec.structs.replace(
            FAST, served_model_name=("tiny-qwen3",), max_model_len=4096
        )
    )


async def refused(
    client: aiohttp.ClientSession,
    worker: SimWorker,
    path: str,
    body: Any,
    **headers: str,
) -> tuple[int, Any]:
    """The status and the error envelope of a request."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | headers
    async with client.post(worker.url + path, data=raw, headers=headers) as response:
        return response.status, await response.json()


def error_cases() -> list[Any]:
    """Captured error bodies of chat and completions, and ids that do not fit."""
    chats = [
        pytest.param(CHAT, case["chat"], id=name)
        for name, case in captures.cases("w1_chat_cases").items()
        if name.startswith("e") and case.get("chat", {}).get("status", 200) != 200
    ]
    forwarded = [
        pytest.param(CHAT, exchange, id=name)
        for name, exchange in captures.cases("w1_token_forwarding_cases").items()
        if exchange["status"] != 200
    ]
    completions = [
        pytest.param("/v1/completions", exchange, id=name)
        for name, exchange in captures.cases("w1_other_cases").items()
        if name.startswith("c") and exchange["status"] != 200
    ]
    transport = [
        pytest.param(CHAT, exchange, id=name)
        for name, exchange in captures.cases("w1_chat_cases")["e30_transport"].items()
        if exchange
    ]
    return chats + forwarded + completions + transport


# Shapes that a list of type validators refuses: ours names the first complaint.
SHORTER = {
    "e21_content_part_unknown_type",
    "e24_null_content",
    "c10_neg_id",
    "c14_mixed",
}


@pytest.mark.parametrize(("path", "exchange"), error_cases())
async def test_as_captured(
    client: aiohttp.ClientSession,
    worker: SimWorker,
    path: str,
    exchange: captures.Exchange,
    request: pytest.FixtureRequest,
) -> None:
    """Status and envelope of each captured refusal."""
    asked = exchange["request"]
    body = asked["__raw__"].encode() if "__raw__" in asked else asked
    status, answer = await refused(
        client, worker, path, body, **exchange["request_headers"]
    )
    expected = exchange["response"]
    assert status == exchange["status"]
    if any(name in request.node.name for name in SHORTER):
        for each in (answer, expected):
            each["error"] = {key: each["error"][key] for key in ("type", "code")}
        if "e21" in request.node.name:
            expected["error"] = answer["error"]
    assert answer == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": "many"}, "body.max_tokens"),
        ({"max_tokens": 1.5}, "body.max_tokens"),
        ({"model": 7}, "body.model"),
        ({"seed": "x"}, "body.seed"),
        ({"cache_salt": 1}, "body.cache_salt"),
        ({"stream_options": []}, "body.stream_options"),
        ({"kv_transfer_params": 3}, "body.kv_transfer_params"),
        ({"kv_transfer_params": {"prompt_token_ids": [True]}},
         "kv_transfer_params.prompt_token_ids"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"messages": [1]}, "body.messages.0"),
        ({"messages": [{"content": "x"}]}, "body.messages.0.role"),
        ({"max_tokens": 4090, "messages": [{"role": "user", "content": "x " * 50}]},
         "input_tokens"),
        ({"stop": 5}, "body.stop"),
        ({"stop": [5]}, "body.stop"),
        ({"stop_token_ids": "x"}, "body.stop_token_ids"),
        ({"temperature": "hot"}, "body.temperature"),
    ],
)  # fmt: skip
async def test_bad_values(
    client: aiohttp.ClientSession, worker: SimWorker, fields: Any, param: str
) -> None:
    """Values of the wrong type or size are a 400 that names the field."""
    status, answer = await refused(client, worker, CHAT, {"messages": USER} | fields)
    assert (status, answer["error"]["param"]) == (400, param)
    assert worker.api.totals.refused == worker.api.totals.requests == 1


@pytest.mark.parametrize("raw", [b"\xff\xfe{", b"[" * 100_000, b"", b"null"])
async def test_bodies_that_are_no_object(
    client: aiohttp.ClientSession, worker: SimWorker, raw: bytes
) -> None:
    """What is no JSON object is a 400, never a 500."""
    status, answer = await refused(client, worker, CHAT, raw)
    assert (status, answer["error"]["code"]) == (400, 400)


async def test_odd_json_is_accepted(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """NaN, huge integers, repeated keys and unknown fields are no reason to refuse."""
    raw = (
        b' {"messages":[{"role":"user","content":"a"}],"x":NaN,"y":1e999,"max_tokens":1'
        b',"z":123456789012345678901234567890,"messages":[{"role":"user","content":"hi"}]'
        b',"return_token_ids":true}\n'
    )
    status, answer = await refused(client, worker, CHAT, raw)
    assert (status, answer["usage"]["prompt_tokens"]) == (200, 9)


@pytest.mark.parametrize(
    ("rank", "status"), [("0", 200), ("1", 400), ("-1", 400), ("x", 200), ("", 200)]
)
async def test_rank(
    client: aiohttp.ClientSession, worker: SimWorker, rank: str, status: int
) -> None:
    """A rank that is not served is refused; what is no number is ignored."""
    body = {"messages": USER, "max_tokens": 1}
    found, answer = await refused(
        client, worker, CHAT, body, **{"X-data-parallel-rank": rank}
    )
    assert found == status
    if status == 400:
        message = f"data_parallel_rank {rank} is out of range [0, 1)."
        assert answer["error"]["message"] == message


async def test_foreign_routes(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Only vLLM's routes are served; others are 404 and wrong methods 405."""
    for path in ("/server_info", "/generate", "/get_model_info", "/v1/embeddings", "/"):
        async with client.get(worker.url + path) as response:
            assert response.status == 404
            assert await response.json() == {"detail": "Not Found"}
    async with client.get(worker.url + CHAT) as response:
        assert response.status == 405
        assert await response.json() == {"detail": "Method Not Allowed"}
        assert response.headers["Allow"] == "POST"
