"""A whole worker over real sockets: what it does, says and publishes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
import zmq
import zmq.asyncio

from kvindex.blocks import unpack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch
from kvindex.wire.vllm import decode_batch, decode_frames
from render import Renderer
from simworker.options import BadOptions
from simworker.server import SimWorker
from tests.simworker import captures
from tests.simworker.conftest import FAST, StartWorker

CHAT = "/v1/chat/completions"
SLOW = msgspec.structs.replace(FAST, speed=1.0, decode_rate=20.0)


class Subscriber:
    """Collects a worker's event batches."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket
        self.sequences: list[int] = []

    async def batches(self, until: int) -> list[EventBatch]:
        """The batches up to number `until - 1`."""
        found = []
        async with asyncio.timeout(5):
            while not self.sequences or self.sequences[-1] < until - 1:
                frames = await self._socket.recv_multipart()
                _, sequence, payload = decode_frames(frames)
                self.sequences.append(sequence)
                found.append(decode_batch(payload))
        return found


@asynccontextmanager
async def subscribed(worker: SimWorker) -> AsyncIterator[Subscriber]:
    """A subscriber to all of a worker's events from now on."""
    assert worker.kv_endpoint is not None
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.connect(worker.kv_endpoint)
        await asyncio.sleep(0.5)
        yield Subscriber(socket)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is true, two seconds at most on an idle machine."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


async def chat(client: aiohttp.ClientSession, worker: SimWorker, **body: Any) -> Any:
    """One chat call; its answer."""
    body = {"messages": [{"role": "user", "content": "hi"}]} | body
    async with client.post(worker.url + CHAT, json=body) as response:
        assert response.status == 200
        return await response.json()


async def get(client: aiohttp.ClientSession, worker: SimWorker, path: str) -> Any:
    """The JSON of a GET."""
    async with client.get(worker.url + path) as response:
        assert response.status == 200
        return await response.json()


async def test_events_tell_what_the_cache_holds(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Who follows the events knows the cache, evictions included."""
    options = msgspec.structs.replace(FAST, blocks=20, bytes_hashes=True)
    worker = await start_worker(options)
    assert worker.publisher is not None
    held: dict[Any, int] = {}
    async with subscribed(worker) as subscriber:
        for number in range(6):
            content = f"{number} " + "word " * 80
            messages = [{"role": "user", "content": content}]
            await chat(client, worker, messages=messages, max_tokens=20)
        batches = await subscriber.batches(worker.publisher.next_sequence)
    assert subscriber.sequences == list(range(worker.publisher.next_sequence))
    removals = 0
    for event in (event for batch in batches for event in batch.events):
        assert isinstance(event, BlockStored | BlockRemoved)
        step = 1 if isinstance(event, BlockStored) else -1
        removals += step == -1
        for value in event.hashes:
            held[value] = held.get(value, 0) + step
    assert {value for value, copies in held.items() if copies} == worker.cache.digests()
    assert sum(held.values()) == worker.cache.held <= worker.cache.capacity
    assert removals > 10
    assert all(batch.rank == 0 and not batch.undecodable for batch in batches)


async def test_stores_the_spans_of_a_real_worker(
    client: aiohttp.ClientSession, start_worker: StartWorker, tmp_path: Path
) -> None:
    """Captured prompts sent as ids, with the captured outputs as answers."""
    exchanges = captures.generated()
    path = tmp_path / "answers.jsonl"
    lines = [
        {"prompt_ids": each["request"]["token_ids"],
         "output_ids": each["response"]["choices"][0]["token_ids"]}
        for each in exchanges
    ]  # fmt: skip
    # One prompt was asked twice, for different lengths: the first line answers both.
    lines.sort(key=lambda line: -len(line["output_ids"]))
    path.write_text("\n".join(map(json.dumps, lines)))
    options = msgspec.structs.replace(FAST, block_size=32, answers=str(path))
    worker = await start_worker(options)
    assert worker.publisher is not None
    async with subscribed(worker) as subscriber:
        for line in lines:
            transfer = {"prompt_token_ids": line["prompt_ids"]}
            answer = await chat(
                client, worker, messages=[], kv_transfer_params=transfer,
                max_tokens=len(line["output_ids"]), return_token_ids=True,
            )  # fmt: skip
            assert answer["choices"][0]["token_ids"] == line["output_ids"]
        batches = await subscriber.batches(worker.publisher.next_sequence)
    ours = captures.spans(
        {
            "block_hashes": event.hashes,
            "parent_block_hash": event.parent,
            "token_ids": unpack_ids(event.token_ids),
            "block_size": event.block_size,
        }
        for batch in batches
        for event in batch.events
        if isinstance(event, BlockStored)
    )
    said = [tuple(line["prompt_ids"] + line["output_ids"]) for line in lines]
    theirs = {
        span
        for span in captures.all_spans()
        if any(tokens[: len(span)] == span for tokens in said)
    }
    assert ours == theirs
    assert len(ours) >= 15


async def test_restart_begins_again(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """A new worker on the same ports numbers from 0, holds nothing, started later."""
    first = await start_worker(FAST)
    await chat(client, first)
    port = int(first.url.rpartition(":")[2])
    assert first.kv_endpoint is not None
    assert first.publisher is not None
    assert first.publisher.next_sequence >= 1
    kv_port = int(first.kv_endpoint.rpartition(":")[2])
    async with client.get(first.url + "/metrics") as response:
        before = await response.text()
    await first.stop()
    options = msgspec.structs.replace(FAST, port=port, kv_events_port=kv_port)
    second = await start_worker(options)
    assert second.url == first.url
    assert second.kv_endpoint == first.kv_endpoint
    async with subscribed(second) as subscriber:
        answer = await chat(client, second)
        await subscriber.batches(1)
    assert subscriber.sequences[0] == 0
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    async with client.get(second.url + "/metrics") as response:
        after = await response.text()
    assert _metric(after, "process_start_time_seconds") > _metric(
        before, "process_start_time_seconds"
    )


def _metric(page: str, name: str) -> float:
    line = next(line for line in page.splitlines() if line.startswith(name))
    return float(line.split()[-1])


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
    assert _metric(page, "vllm:prompt_tokens_total") == 9
    assert _metric(page, "vllm:generation_tokens_total") == 4
    assert _metric(page, "vllm:prefix_cache_queries_total") == 9
    assert 'finished_reason="length",engine="0",model_name="qwen3-demo"} 1.0' in page
    config = next(line for line in page.splitlines() if "cache_config_info{" in line)
    assert 'block_size="16"' in config
    assert 'num_gpu_blocks="8192"' in config


async def test_without_events(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """As engines ship: no endpoint, an empty list of sources, the same answers."""
    worker = await start_worker(msgspec.structs.replace(FAST, kv_events=False))
    await chat(client, worker)
    assert worker.kv_endpoint is None
    assert worker.replay_endpoint is None
    assert await get(client, worker, "/kv_event_sources") == {}


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


async def test_reset_is_for_dev_mode(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """A reset empties the cache; its event comes with the next request's."""
    worker = await start_worker(msgspec.structs.replace(FAST, dev_mode=True))
    messages = [{"role": "user", "content": "word " * 20}]
    await chat(client, worker, messages=messages, max_tokens=1)
    assert worker.cache.held > 0
    async with subscribed(worker) as subscriber:
        async with client.post(worker.url + "/reset_prefix_cache") as response:
            assert await response.json() == {"success": True}
        assert worker.cache.held == 0
        await chat(client, worker, messages=messages, max_tokens=1)
        (batch,) = await subscriber.batches(2)
    names = [type(event).__name__ for event in batch.events]
    assert names == ["AllBlocksCleared", "BlockStored"]


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


async def test_openai_client(worker: SimWorker) -> None:
    """The official client reads answers, streams and refusals."""
    async with openai.AsyncOpenAI(
        base_url=f"{worker.url}/v1", api_key="none", max_retries=0
    ) as api:
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
