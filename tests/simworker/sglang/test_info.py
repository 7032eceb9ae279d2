"""What a simulated SGLang worker says of itself, and its tokenizer routes."""

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.sglang.conftest import SGLANG
from tests.simworker.talk import CHAT, eventually, get, post

MESSAGES = [{"role": "user", "content": "hi"}]
HELLO_IDS = [151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198]


async def test_what_it_says_of_itself(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Models, server and model info, loads: what a gateway reads."""
    worker = await start_worker(
        msgspec.structs.replace(SGLANG, served_model_name=("a:b",), max_model_len=512)
    )
    card = (await get(client, worker, "/v1/models"))["data"][0]
    assert (card["id"], card["root"], card["owned_by"]) == ("a:b", "a:b", "sglang")
    assert (card["max_model_len"], card["parent"]) == (512, None)
    assert (await get(client, worker, "/v1/models/a:b"))["id"] == "a:b"
    async with client.get(worker.url + "/v1/models/c") as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (404, "model_not_found")
    # An exact name with a colon names no adapter.
    body = {"model": "a:b", "messages": MESSAGES, "max_tokens": 1}
    assert (await post(client, worker, CHAT, body))[0] == 200
    info = await get(client, worker, "/server_info")
    assert (info["page_size"], info["dp_size"], info["version"]) == (64, 1, "0.5.23")
    assert worker.publisher is not None
    assert info["kv_events"] == {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": worker.publisher.port,
        "topic": "kv-events",
        "block_size": 64,
        "dp_size": 1,
    }
    assert info["model_path"] == str(worker.renderer.model.path)
    assert await get(client, worker, "/get_server_info") == info
    model = await get(client, worker, "/model_info")
    assert (model["model_type"], model["architectures"]) == (
        "qwen3", ["Qwen3ForCausalLM"],
    )  # fmt: skip
    assert await get(client, worker, "/get_model_info") == model
    (load,) = (await get(client, worker, "/v1/loads"))["loads"]
    assert (load["num_running_reqs"], load["num_used_tokens"]) == (0, 0)
    assert worker.kv_endpoint == f"tcp://127.0.0.1:{worker.publisher.port}"


async def test_health(client: aiohttp.ClientSession, start_worker: StartWorker) -> None:
    """/ready and /ping are cheap; /health takes a second, a generation, or gives up."""
    options = msgspec.structs.replace(SGLANG, speed=5.0, prefill_rate=500.0)
    worker = await start_worker(options)
    for path, least in (("/ready", 0.0), ("/ping", 0.0), ("/health", 0.2)):
        start = time.monotonic()
        async with client.get(worker.url + path) as response:
            assert (response.status, await response.read()) == (200, b"")
        assert time.monotonic() - start >= least
    # A prefill of 12 s, in a fifth of it, keeps it from answering for twenty.
    body = {"prompt": list(range(1, 12_000)), "max_tokens": 1}
    call = asyncio.ensure_future(post(client, worker, "/v1/completions", body))
    await eventually(lambda: worker.engine.running == 1)
    async with client.get(worker.url + "/health_generate") as response:
        assert response.status == 503
    call.cancel()


async def test_foreign_routes(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Only SGLang's routes are served: no version, no metrics, no render routes."""
    for path in ("/version", "/metrics", "/load", "/kv_event_sources", "/render"):
        async with client.get(worker.url + path) as response:
            assert response.status == 404
    for path in ("/v1/chat/completions/render", "/_internal/tokenize"):
        assert (await post(client, worker, path, {}))[0] == 404


async def test_tokenize(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Messages as a chat shows them, a prompt, several; and back to text."""
    shown = {"tokens": HELLO_IDS, "count": 9, "max_model_len": 40960}
    for path in ("/tokenize", "/v1/tokenize"):
        found = await post(client, worker, path, {"messages": MESSAGES})
        assert found == (200, shown)
    ignored = {"messages": MESSAGES, "input_ids": [1], "x": 1}
    assert (await post(client, worker, "/tokenize", ignored))[1] == shown
    _, answer = await post(client, worker, "/tokenize", {"prompt": "one two"})
    assert (answer["tokens"], answer["count"]) == ([603, 1378], 2)
    _, answer = await post(client, worker, "/tokenize", {"prompt": ["one two", ""]})
    assert (answer["tokens"], answer["count"]) == ([[603, 1378], []], [2, 0])
    for tokens, text in (
        ({"tokens": HELLO_IDS}, "user\nhi\nassistant\n"),
        ({"tokens": [[603], [1378]]}, ["one", " two"]),
        ({"tokens": []}, ""),
        ({"tokens": [151644], "skip_special_tokens": False}, "<|im_start|>"),
    ):
        answered = await post(client, worker, "/detokenize", tokens)
        assert answered == (200, {"text": text})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": MESSAGES}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"prompt": [1, 2]}),
        ("/tokenize", {"messages": MESSAGES, "add_generation_prompt": False}),
        ("/tokenize", {"messages": [{"role": "robot", "content": "x"}]}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": "x"}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [[1], 2]}),
    ],
)
async def test_tokenize_refuses(
    client: aiohttp.ClientSession, worker: SimWorker, path: str, body: Any
) -> None:
    """What is missing or of the wrong type is a flat 400."""
    status, answer = await post(client, worker, path, body)
    assert (status, answer["object"]) == (400, "error")


async def test_flush(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """An empty cache afterwards."""
    body = {"prompt": list(range(1, 200)), "max_tokens": 1}
    await post(client, worker, "/v1/completions", body)
    assert worker.cache.held == 3
    async with client.post(worker.url + "/flush_cache") as response:
        assert response.status == 200
    assert worker.cache.held == 0
