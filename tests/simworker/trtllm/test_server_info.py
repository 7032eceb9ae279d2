"""What a simulated TensorRT-LLM worker says of itself, its fingerprint first."""

import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from render import Renderer
from simworker.options import BadOptions
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.talk import CHAT, get, post
from tests.simworker.trtllm.conftest import TRTLLM

MESSAGES = [{"role": "user", "content": "hi"}]


async def told(client: aiohttp.ClientSession, worker: SimWorker) -> Any:
    """The fingerprint of a worker."""
    return (await get(client, worker, "/server_info"))["render_fingerprint"]


def differing(left: Any, right: Any, path: str = "") -> list[str]:
    """The paths of what two objects have otherwise."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [
            found
            for name in left
            for found in differing(left[name], right[name], f"{path}.{name}")
        ]
    return [] if left == right else [path[1:]]


async def test_what_it_says_of_itself(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Models, version, server info, health and statistics in the engine's shapes."""
    models = await get(client, worker, "/v1/models")
    (card,) = models["data"]
    assert list(card) == ["id", "object", "created", "owned_by"]
    assert (card["id"], card["owned_by"]) == ("qwen3-demo", "tensorrt_llm")
    assert await get(client, worker, "/version") == {"version": "1.4.0rc4"}
    info = await get(client, worker, "/server_info")
    assert list(info) == [
        "disaggregated_params", "max_batch_size", "kv_cache_hash_algo",
        "tokens_per_block", "startup_metrics", "render_fingerprint",
    ]  # fmt: skip
    assert (info["tokens_per_block"], info["max_batch_size"]) == (32, 64)
    for path, text in (
        ("/health", ""), ("/health_generate", "Generation health check OK"),
    ):  # fmt: skip
        async with client.get(worker.url + path) as response:
            assert (response.status, await response.text()) == (200, text)
    body = {"model": "m", "messages": MESSAGES, "max_tokens": 1}
    await post(client, worker, CHAT, body)
    (stats,) = await get(client, worker, "/metrics")
    assert stats["kvCacheStats"]["tokensPerBlock"] == 32
    assert await get(client, worker, "/metrics") == []
    _, (created,) = await post(client, worker, "/kv_cache_events", {})
    assert created["data"] == {
        "type": "created",
        "num_blocks_per_cache_level": [8191, 0],
    }
    assert await post(client, worker, "/kv_cache_events", {}) == (200, [])
    assert worker.kv_endpoint is None


async def test_foreign_routes(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Only TensorRT-LLM's routes are served."""
    for path in ("/tokenize", "/detokenize", "/model_info", "/load", "/ping"):
        async with client.get(worker.url + path) as response:
            assert response.status == 404
        assert (await post(client, worker, path, {}))[0] == 404


async def test_internal_tokenize(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Plain text only; messages are refused."""
    path = "/_internal/tokenize"
    answer = {"count": 2, "tokens": [603, 1378]}
    assert await post(client, worker, path, {"prompt": "one two"}) == (200, answer)
    status, _ = await post(client, worker, path, {"messages": MESSAGES})
    assert status == 400


async def test_equal_fingerprints(
    client: aiohttp.ClientSession, start_worker: StartWorker, tmp_path: Path
) -> None:
    """Workers of one model have one digest, also one told of another's."""
    first = await told(client, await start_worker(TRTLLM))
    assert list(first) == ["digest", "compared", "info"]
    assert first["compared"]["version"] == 2
    assert first["compared"]["tokenizer"]["complete"] is True
    assert await told(client, await start_worker(TRTLLM)) == first
    other = first["compared"] | {"model_type": "else"}
    file = tmp_path / "info.json"
    file.write_text(json.dumps({"render_fingerprint": {"compared": other}}))
    options = msgspec.structs.replace(TRTLLM, render_fingerprint_file=str(file))
    found = await told(client, await start_worker(options))
    assert found["compared"] == other
    assert found["digest"] != first["digest"]


@pytest.mark.parametrize(
    "field", ["version", "model_type", "tokenizer.class", "tokenizer.encoding.sha256"]
)
async def test_a_field_that_differs(
    client: aiohttp.ClientSession, worker: SimWorker, field: str
) -> None:
    """One field and the digest; changed while it runs, and changed back."""
    before = await told(client, worker)
    path, mode = "/sim/render_fingerprint", {"mode": f"differs:{field}"}
    assert await post(client, worker, path, mode) == (200, mode)
    after = await told(client, worker)
    assert differing(before, after) == ["digest", f"compared.{field}"]
    assert (await post(client, worker, path, {"mode": "differs:x"}))[0] == 400
    await post(client, worker, path, {"mode": "equal"})
    assert await told(client, worker) == before


@pytest.mark.usefixtures("loaded_once")
async def test_a_template_of_its_own(
    client: aiohttp.ClientSession, worker: SimWorker, start_worker: StartWorker
) -> None:
    """It is rendered, and the fingerprint differs by it."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    options = msgspec.structs.replace(TRTLLM, chat_template=template)
    other = await start_worker(options)
    body = {"model": "m", "messages": MESSAGES, "max_tokens": 1}
    _, answer = await post(client, other, CHAT, body)
    assert answer["usage"]["prompt_tokens"] == 1
    found = differing(await told(client, worker), await told(client, other))
    assert found == ["digest", "compared.templates.server"]


async def test_incomplete_and_missing(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """A tokenizer that is not fully identified; no fingerprint at all."""
    options = msgspec.structs.replace(TRTLLM, render_fingerprint="incomplete")
    tokenizer = (await told(client, await start_worker(options)))["compared"][
        "tokenizer"
    ]
    assert (tokenizer["complete"], tokenizer["encoding"]) == (False, None)
    options = msgspec.structs.replace(TRTLLM, render_fingerprint="missing")
    info = await get(client, await start_worker(options), "/server_info")
    assert "render_fingerprint" not in info
    assert info["tokens_per_block"] == 32


@pytest.mark.parametrize(("mode", "status"), [("error", 500), ("unauthorised", 401)])
async def test_no_server_info(
    client: aiohttp.ClientSession, start_worker: StartWorker, mode: str, status: int
) -> None:
    """The route fails; chats go on."""
    options = msgspec.structs.replace(TRTLLM, render_fingerprint=mode)
    worker = await start_worker(options)
    async with client.get(worker.url + "/server_info") as response:
        assert (response.status, (await response.json())["code"]) == (status, status)
    body = {"model": "m", "messages": MESSAGES, "max_tokens": 1}
    assert (await post(client, worker, CHAT, body))[0] == 200


async def test_slow_and_garbage(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """An answer that takes its time, and one that is no JSON."""
    options = msgspec.structs.replace(TRTLLM, render_fingerprint="slow:0.3")
    worker = await start_worker(options)
    start = time.monotonic()
    assert await told(client, worker)
    assert time.monotonic() - start >= 0.3
    await post(client, worker, "/sim/render_fingerprint", {"mode": "garbage"})
    async with client.get(worker.url + "/server_info") as response:
        assert (await response.text()).startswith("<html>")


@pytest.mark.parametrize(
    "changes",
    [
        {"render_fingerprint": "differs:nothing"},
        {"render_fingerprint": "slow:long"},
        {"render_fingerprint_file": "/does/not/exist"},
        {"lora_modules": ("a=b",)},
    ],
)
def test_bad_options(renderer: Renderer, changes: dict[str, Any]) -> None:
    """Refused with one line."""
    with pytest.raises(BadOptions, match=r"^--"):
        SimWorker(msgspec.structs.replace(TRTLLM, **changes), renderer)


@pytest.mark.parametrize("value", [None, "0", "true", " 1", "01"])
async def test_no_render_routes(
    client: aiohttp.ClientSession,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
) -> None:
    """Nothing but `1` turns them on."""
    monkeypatch.delenv("TRTLLM_ENABLE_RENDER_ENDPOINTS", raising=False)
    if value is not None:
        monkeypatch.setenv("TRTLLM_ENABLE_RENDER_ENDPOINTS", value)
    worker = await start_worker(TRTLLM)
    for path in ("/v1/chat/completions/render", "/v1/completions/render"):
        assert (await post(client, worker, path, {}))[0] == 404


async def test_render_routes(
    client: aiohttp.ClientSession,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine's own answers, flat refusals, a gateway's fields taken out."""
    monkeypatch.setenv("TRTLLM_ENABLE_RENDER_ENDPOINTS", "1")
    monkeypatch.setenv("TRTLLM_RENDER_IGNORED_FIELDS", "mine, other")
    worker = await start_worker(TRTLLM)
    body: dict[str, Any] = {"model": "m", "messages": MESSAGES}
    path = "/v1/chat/completions/render"
    status, answer = await post(client, worker, path, body | {"nvext": {}, "mine": 1})
    assert status == 200
    assert answer["token_ids"] == [
        151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198,
    ]  # fmt: skip
    assert (answer["schema_version"], answer["request"]) == (1, body)
    assert "sampling_params" not in answer
    # Its ids go back with its request, and are not rendered again.
    forwarded = answer["request"] | {"prompt_token_ids": answer["token_ids"]}
    status, _ = await post(client, worker, CHAT, forwarded | {"max_tokens": 1})
    assert (status, worker.api.totals.skipped_rendering) == (200, 1)
    status, answer = await post(client, worker, path, body | {"input_ids": [1]})
    assert (status, answer["object"], answer["type"]) == (
        400, "error", "BadRequestError",
    )  # fmt: skip
    text = {"model": "m", "prompt": ["one two", "x"]}
    status, items = await post(client, worker, "/v1/completions/render", text)
    assert [item["token_ids"] for item in items] == [[603, 1378], [87]]
