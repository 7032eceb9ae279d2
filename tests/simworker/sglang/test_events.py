"""What a simulated SGLang worker publishes, as the engine's own bytes."""

import asyncio
from itertools import pairwise
from typing import Any

import aiohttp
import msgspec
import zmq
import zmq.asyncio
from msgspec import msgpack

from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.sglang.conftest import SGLANG
from tests.simworker.talk import CHAT, get, post

PAGES = msgspec.structs.replace(SGLANG, block_size=8, kv_events_topic="t")
LONG = [{"role": "user", "content": "word " * 30}]


class Listener:
    """Hears a worker's batches, undecoded."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket

    async def batch(self) -> Any:
        """The next one."""
        async with asyncio.timeout(5):
            topic, sequence, payload = await self._socket.recv_multipart()
        assert (topic, len(sequence)) == (b"t", 8)
        return msgpack.decode(payload)


async def ask(client: aiohttp.ClientSession, worker: SimWorker) -> list[int]:
    """One chat; all its token ids."""
    body = {
        "messages": LONG, "max_tokens": 30, "return_prompt_token_ids": True,
        "return_token_ids": True, "cache_salt": "s", "ignore_eos": True,
    }  # fmt: skip
    status, answer = await post(client, worker, CHAT, body)
    assert status == 200
    (choice,) = answer["choices"]
    ids: list[int] = choice["prompt_token_ids"] + choice["token_ids"]
    return ids


async def listening(
    context: zmq.asyncio.Context, worker: SimWorker
) -> zmq.asyncio.Socket:
    """A subscriber."""
    assert worker.kv_endpoint is not None
    socket = context.socket(zmq.SUB)
    socket.subscribe(b"")
    socket.connect(worker.kv_endpoint)
    await asyncio.sleep(0.5)
    return socket


async def test_the_first_batches(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """A new tree is cleared; the prompt's pages are one event, the output's another."""
    worker = await start_worker(PAGES)
    with (
        zmq.asyncio.Context() as context,
        await listening(context, worker) as socket,
    ):
        ids = await ask(client, worker)
        listener = Listener(socket)
        _, first, rank = await listener.batch()
        _, second, _ = await listener.batch()
    assert rank == 0
    cleared, prompt = first
    assert cleared == {"type": "AllBlocksCleared"}
    (output,) = second
    assert list(prompt) == [
        "type", "block_hashes", "parent_block_hash", "token_ids", "block_size",
        "lora_id", "medium", "cache_salt",
    ]  # fmt: skip
    assert (prompt["medium"], prompt["cache_salt"]) == ("GPU", "s")
    assert output["parent_block_hash"] == prompt["block_hashes"][-1]
    assert prompt["token_ids"] + output["token_ids"] == ids[: (len(ids) - 1) // 8 * 8]
    assert any(value < 0 for value in prompt["block_hashes"] + output["block_hashes"])


async def test_pairs(client: aiohttp.ClientSession, start_worker: StartWorker) -> None:
    """Each token with the one behind it, also where that is in the next page."""
    worker = await start_worker(msgspec.structs.replace(PAGES, bigrams=True))
    info = await get(client, worker, "/server_info")
    assert info["speculative_algorithm"] == "EAGLE3"
    with (
        zmq.asyncio.Context() as context,
        await listening(context, worker) as socket,
    ):
        ids = await ask(client, worker)
        listener = Listener(socket)
        _, (_, prompt), _ = await listener.batch()
        _, (output,), _ = await listener.batch()
    pairs = prompt["token_ids"] + output["token_ids"]
    computed = ids[:-1]
    assert len(pairs) == (len(computed) - 1) // 8 * 8
    expected = [[*pair] for pair in pairwise(computed)]
    assert pairs == expected[: len(pairs)]


async def test_a_flush_is_told_at_once(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """An idle engine does not wait for its next step."""
    worker = await start_worker(PAGES)
    with (
        zmq.asyncio.Context() as context,
        await listening(context, worker) as socket,
    ):
        await ask(client, worker)
        listener = Listener(socket)
        await listener.batch()
        await listener.batch()
        async with client.post(worker.url + "/flush_cache") as response:
            assert response.status == 200
        _, events, _ = await listener.batch()
    assert events == [{"type": "AllBlocksCleared"}]


async def test_the_descriptor(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """With replay its port, too; none at all with events off."""
    worker = await start_worker(msgspec.structs.replace(PAGES, replay_port=0))
    described = (await get(client, worker, "/server_info"))["kv_events"]
    publisher = worker.publisher
    assert publisher is not None
    assert described["endpoint_port_base"] == publisher.port
    assert described["replay_endpoint_port_base"] == publisher.replay_port
    worker = await start_worker(msgspec.structs.replace(PAGES, kv_events=False))
    info = await get(client, worker, "/server_info")
    assert (info["kv_events"], info["kv_events_config"]) == (None, None)
