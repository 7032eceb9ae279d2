"""`GET /server_info` of the front door and of the render server."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from render.fingerprint import sha256_json
from tests.gateway.fingerprinting import Waiting
from tests.gateway.render_rig import StartRenderServer
from tests.render.models import byte_level, save
from tests.running import MODEL, SIM, StartGateway, StartWorker, until


async def test_the_render_server(
    start_render_server: StartRenderServer, waiting: Waiting
) -> None:
    """Ready and rendering without it; then it is told, with profile and parsers."""
    server = await start_render_server(
        tool_call_parser="hermes", reasoning_parser="qwen3"
    )
    assert (await server.get("/server_info"))["render_fingerprint"] is None
    assert await server.get("/ready") == {"status": "ready"}
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    assert (await server.post("/v1/chat/completions/render", body))["token_ids"]
    waiting.go.set()
    found = await _fingerprint(server)
    assert found["compared"] == {"model_type": "qwen3"}
    assert found["info"] == {
        "tool_parser": "hermes", "reasoning_parser": "qwen3", "profile": "vllm",
    }  # fmt: skip


async def _fingerprint(server: Any) -> Any:
    async def there() -> Any:
        return (await server.get("/server_info"))["render_fingerprint"]

    await until(there)
    return await there()


async def test_the_front_door(
    start_worker: StartWorker, start_gateway: StartGateway, waiting: Waiting
) -> None:
    """Open like /health, ready without it; one model as a render server tells it."""
    gateway = await start_gateway(await start_worker())
    assert await gateway.get("/ready") == {"status": "ready"}
    info = await gateway.get("/server_info")
    assert (info["role"], info["model"], info["schema_version"]) == (
        "gateway", MODEL, 1,
    )  # fmt: skip
    assert info["render_fingerprint"] is None
    assert info["models"][MODEL]["render_fingerprint"] is None
    assert info["models"][MODEL]["info"]["profile"] == "vllm"
    waiting.go.set()
    found = await _fingerprint(gateway)
    assert found["digest"] == sha256_json({"model_type": "qwen3"})
    assert found["info"]["profile"] == "vllm"
    info = await gateway.get("/server_info")
    assert info["models"][MODEL]["render_fingerprint"] == found


async def test_several_models(
    start_worker: StartWorker, start_gateway: StartGateway, waiting: Waiting,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A fingerprint for each; none for one that is only served."""
    waiting.go.set()
    path = save(tmp_path / "tiny", byte_level())
    worker = await start_worker()
    gateway = await start_gateway(worker, model=(("tiny", str(path)),))
    await _known(gateway, "tiny")
    info = await gateway.get("/server_info")
    assert list(info["models"]) == [MODEL, "tiny"]
    assert info["models"][MODEL] == {"render_fingerprint": None, "info": None}
    assert (info["model"], info["render_fingerprint"]) == (MODEL, None)
    compared = info["models"]["tiny"]["render_fingerprint"]["compared"]
    assert compared == {"model_type": "tiny"}


async def _known(gateway: Any, model: str) -> None:
    async def there() -> Any:
        info = await gateway.get("/server_info")
        return info["models"][model]["render_fingerprint"]

    await until(there)


async def test_no_model(start_gateway: StartGateway) -> None:
    """Without workers and without models there is nothing to tell."""
    gateway = await start_gateway("http://127.0.0.1:1", model=(), render="never")
    info = await gateway.get("/server_info")
    assert (info["model"], info["render_fingerprint"]) == (None, None)
    assert info["models"] == {}


async def test_no_worker(start_gateway: StartGateway, waiting: Waiting) -> None:
    """A model without a name is told by where it is, until workers name it."""
    waiting.go.set()
    gateway = await start_gateway("http://127.0.0.1:1")
    info = await gateway.get("/server_info")
    (name,) = info["models"]
    assert name == info["model"]
    assert (await _fingerprint(gateway))["compared"] == {"model_type": "qwen3"}


@pytest.mark.usefixtures("never_blocks")
async def test_the_loop_does_not_wait(
    start_render_server: StartRenderServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The real computation: process, files and cache are a thread's business."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = save(tmp_path / "tiny", byte_level())
    server = await start_render_server(model=str(path))
    longest, before = 0.0, time.monotonic()
    while (await server.get("/server_info"))["render_fingerprint"] is None:
        await asyncio.sleep(0.005)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    assert longest < 2.0
    found = await _fingerprint(server)
    assert found["digest"] == sha256_json(found["compared"])
    assert found["compared"]["model_type"] == "tiny"


async def test_a_worker_is_asked_the_same(
    start_worker: StartWorker, start_render_server: StartRenderServer
) -> None:
    """A simulated TensorRT-LLM worker of the same model has the same digest."""
    worker = await start_worker(msgspec.structs.replace(SIM, engine="trtllm"))
    server = await start_render_server()
    ours = await _fingerprint(server)
    async with server.client.get(worker.url + "/server_info") as response:
        theirs = (await response.json())["render_fingerprint"]
    assert theirs["compared"] == ours["compared"]
    assert theirs["digest"] == ours["digest"]
