"""A whole worker over real sockets: what it says of itself, and how it ends."""

import asyncio
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from render import Renderer
from simworker.options import BadOptions
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.conftest import FAST
from tests.simworker.talk import CHAT, chat, eventually, get, metric, openai_client

SLOW = msgspec.structs.replace(FAST, speed=1.0, decode_rate=20.0)


async def test_what_it_says_of_itself(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Models, version, event sources and metrics in the captured shapes."""
    worker = await start_worker(
        msgspec.structs.replace(FAST, replay_port=0, max_model_len=4096)
    )
    await chat(client, worker, max_tokens=4)
    models = await get(client, worker, "/v1/models")
    (card,) = models["data"]
    assert list(card) == [
        "id", "object", "created", "owned_by", "root", "parent", "max_model_len",
        "permission",
    ]  # fmt: skip
    assert (card["owned_by"], card["max_model_len"]) == ("vllm", 4096)
    assert card["root"] == str(worker.renderer.model.path)
    assert await get(client, worker, "/version") == {"version": "0.32.0"}
    assert await get(client, worker, "/load") == {"server_load": 0}
    sources = await get(client, worker, "/kv_event_sources")
    assert sources["0"]["endpoint"] == worker.kv_endpoint
    assert sources["0"]["replay_endpoint"] == worker.replay_endpoint
    for path in ("/health", "/ping"):
        async with client.get(worker.url + path) as response:
            assert (response.status, await response.read()) == (200, b"")
    async with client.get(worker.url + "/metrics") as response:
        page = await response.text()
    assert metric(page, "vllm:prompt_tokens_total") == 9
    assert metric(page, "vllm:generation_tokens_total") == 4
    assert metric(page, "vllm:prefix_cache_queries_total") == 9
    assert 'finished_reason="length",engine="0",model_name="qwen3-demo"} 1.0' in page
    config = next(line for line in page.splitlines() if "cache_config_info{" in line)
    assert 'block_size="16"' in config
    assert 'num_gpu_blocks="8192"' in config


@pytest.mark.parametrize(
    ("host", "url", "listed"),
    [
        ("localhost", "http://localhost:", "tcp://127.0.0.1:"),
        ("0.0.0.0", "http://0.0.0.0:", "tcp://*:"),
    ],
)
async def test_hosts(
    client: aiohttp.ClientSession,
    start_worker: StartWorker,
    host: str,
    url: str,
    listed: str,
) -> None:
    """A name is resolved for the events; on all addresses they are listed so."""
    worker = await start_worker(msgspec.structs.replace(FAST, host=host))
    assert worker.url.startswith(url)
    sources = await get(client, worker, "/kv_event_sources")
    assert sources["0"]["endpoint"].startswith(listed)


async def test_openai_client(worker: SimWorker) -> None:
    """The official client reads answers, streams and refusals."""
    async with openai_client(worker) as api:
        assert [model.id async for model in api.models.list()] == ["qwen3-demo"]
        whole = await api.chat.completions.create(
            model="qwen3-demo", max_completion_tokens=12, seed=1,
            messages=[{"role": "user", "content": "hi"}],
        )  # fmt: skip
        assert whole.usage is not None
        assert whole.usage.prompt_tokens_details is not None
        assert whole.usage.prompt_tokens_details.cached_tokens == 0
        stream = await api.chat.completions.create(
            model="qwen3-demo", max_completion_tokens=12, seed=1, stream=True,
            messages=[{"role": "user", "content": "hi"}],
            stream_options={"include_usage": True},
        )  # fmt: skip
        text, usages = "", []
        async for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usages += [chunk.usage] if chunk.usage else []
        assert text == whole.choices[0].message.content
        assert [usage.completion_tokens for usage in usages] == [12]
        completion = await api.completions.create(
            model="qwen3-demo", prompt=[1, 2, 3], max_tokens=4
        )
        assert completion.choices[0].finish_reason == "length"
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await api.chat.completions.create(
                model="nope", messages=[{"role": "user", "content": "hi"}]
            )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_slot(
    client: aiohttp.ClientSession, start_worker: StartWorker, stream: bool
) -> None:
    """The request is aborted at once, its blocks are free, and it is counted."""
    worker = await start_worker(SLOW)
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "stream": stream, "max_tokens": 500, "ignore_eos": True,
    }  # fmt: skip
    call = asyncio.ensure_future(client.post(worker.url + CHAT, json=body))
    await eventually(lambda: worker.engine.running == 1)
    if stream:
        (await call).close()
    else:
        call.cancel()
    await eventually(lambda: worker.engine.running == 0)
    assert worker.runner.aborted == 1
    assert worker.cache.used == 0
    stats = await get(client, worker, "/sim/stats")
    assert (stats["requests"], stats["aborted"], stats["finished"]) == (1, 1, 0)


async def test_stopping_cuts_off_what_runs(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """A worker that dies ends its streams at once, without `[DONE]`."""
    worker = await start_worker(SLOW)
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True, "max_tokens": 500, "ignore_eos": True,
    }  # fmt: skip
    async with client.post(worker.url + CHAT, json=body) as response:
        assert (await response.content.readline()).startswith(b"data: {")
        async with asyncio.timeout(2):
            await worker.stop()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


async def test_taken_port(start_worker: StartWorker, renderer: Renderer) -> None:
    """A second worker on a port in use does not start and leaves nothing behind."""
    first = await start_worker(FAST)
    port = int(first.url.rpartition(":")[2])
    second = SimWorker(msgspec.structs.replace(FAST, port=port), renderer)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await second.stop()


@pytest.mark.parametrize(
    "changes",
    [{"max_model_len": 10_000_000}, {"max_model_len": 0}, {"lora_modules": ("x",)}],
)
def test_options_that_do_not_fit_the_model(
    renderer: Renderer, changes: dict[str, Any]
) -> None:
    """What only the loaded model can judge is refused with one line, too."""
    with pytest.raises(BadOptions, match="--"):
        SimWorker(msgspec.structs.replace(FAST, **changes), renderer)
