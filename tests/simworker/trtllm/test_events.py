"""What `/kv_cache_events` of a simulated TensorRT-LLM worker drains."""

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.talk import CHAT, chat, get, post
from tests.simworker.trtllm.conftest import TRTLLM

LONG = [{"role": "user", "content": "word " * 40}]
SMALL = msgspec.structs.replace(TRTLLM, block_size=8, blocks=64)


async def drain(client: aiohttp.ClientSession, worker: SimWorker) -> list[Any]:
    """The events that wait."""
    status, events = await post(client, worker, "/kv_cache_events", {})
    assert status == 200
    return list(events)


async def ask(client: aiohttp.ClientSession, worker: SimWorker, words: str) -> Any:
    """A chat of 20 tokens of output."""
    messages = [{"role": "user", "content": words}]
    return await chat(client, worker, model="m", messages=messages, max_tokens=20)


async def test_a_request_in_events(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Created first; the prompt's blocks in one event; the output's at its end."""
    worker = await start_worker(msgspec.structs.replace(SMALL, decode_rate=1.0))
    (created,) = await drain(client, worker)
    assert created == {
        "event_id": 0,
        "data": {"type": "created", "num_blocks_per_cache_level": [63, 0]},
        "window_size": 32_768,
    }
    asked = asyncio.create_task(ask(client, worker, "word " * 40))
    events: list[Any] = []
    while not events:
        await asyncio.sleep(0.01)
        events = await drain(client, worker)
    (prompt,) = events
    assert not asked.done()
    usage = (await asked)["usage"]
    (output,) = await drain(client, worker)
    first, second = prompt["data"], output["data"]
    assert (first["type"], first["parent_hash"]) == ("stored", None)
    assert len(first["blocks"]) == usage["prompt_tokens"] // 8
    block = first["blocks"][0]
    assert (block["type"], block["cache_level"], block["priority"]) == (
        "stored_block", 0, 35,
    )  # fmt: skip
    assert [token["type"] for token in block["tokens"]] == ["unique_token"] * 8
    assert second["parent_hash"] == first["blocks"][-1]["block_hash"]
    held = (usage["total_tokens"] - 1) // 8
    assert len(first["blocks"]) + len(second["blocks"]) == held
    assert [prompt["event_id"], output["event_id"]] == [1, 2]


async def test_a_part_of_a_block(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """With tails the last tokens of a request are a block, but for the very last."""
    worker = await start_worker(msgspec.structs.replace(SMALL, tails=True))
    usage = (await ask(client, worker, "word " * 40))["usage"]
    events = await drain(client, worker)
    blocks = [
        block
        for event in events
        if event["data"]["type"] == "stored"
        for block in event["data"]["blocks"]
    ]
    sizes = [len(block["tokens"]) for block in blocks]
    assert sum(sizes) == usage["total_tokens"] - 1
    assert sizes[-1] == (usage["total_tokens"] - 1) % 8


async def test_groups_and_ranks(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Each rank has ids of its own; each layer group tells the blocks of its window."""
    worker = await start_worker(
        msgspec.structs.replace(
            SMALL,
            data_parallel_size=2,
            attention_windows=(16,),
            event_hash_algo="v2_sha256_64",
        )
    )
    for number in range(2):
        await ask(client, worker, f"{number} " + "word " * 40)
    events = await drain(client, worker)
    for rank in range(2):
        mine = [event for event in events if event["attention_dp_rank"] == rank]
        assert [event["event_id"] for event in mine] == list(range(len(mine)))
        assert [event["layer_group_id"] for event in mine] == [0, 1] * (len(mine) // 2)
        assert {event["window_size"] for event in mine} == {32_768, 16}
        assert {event["hash_algo"] for event in mine} == {"v2_sha256_64"}
        full, windowed = mine[2]["data"], mine[3]["data"]
        assert len(full["blocks"]) > len(windowed["blocks"]) == 2
        assert windowed["blocks"] == full["blocks"][-2:]
        assert windowed["parent_hash"] == full["blocks"][-3]["block_hash"]


async def test_overflow_and_a_second_consumer(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """What does not fit is lost, the oldest first; who drains takes it all."""
    worker = await start_worker(msgspec.structs.replace(SMALL, event_buffer=3))
    for number in range(4):
        await ask(client, worker, f"{number} " + "word " * 40)
    ids = [event["event_id"] for event in await drain(client, worker)]
    assert len(ids) == 3
    assert ids[0] > 0
    stats = await get(client, worker, "/sim/stats")
    assert (stats["events_lost"], stats["event_drains"]) == (ids[0], 1)
    await ask(client, worker, "next " * 40)
    assert await drain(client, worker) != []
    assert await drain(client, worker) == []


async def test_eviction_leaf_first(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Removals in a row are one event, the end of a chain before its start."""
    worker = await start_worker(msgspec.structs.replace(SMALL, blocks=20))
    await ask(client, worker, "word " * 80)
    stored = [
        block["block_hash"]
        for event in (await drain(client, worker))[1:]
        for block in event["data"]["blocks"]
    ]
    await ask(client, worker, "else " * 80)
    removed = [
        name
        for event in await drain(client, worker)
        if event["data"]["type"] == "removed"
        for name in event["data"]["block_hashes"]
    ]
    assert len(removed) > 3
    assert removed == list(reversed(stored))[: len(removed)]


@pytest.mark.parametrize(
    ("drain_fault", "status"), [("error", 503), ("garbage", 200), ("hang", 200)]
)
async def test_a_drain_that_fails(
    client: aiohttp.ClientSession,
    start_worker: StartWorker,
    drain_fault: str,
    status: int,
) -> None:
    """An error, what is no JSON, or a long wait; then all is well again."""
    worker = await start_worker(SMALL)
    faults = {"drain": drain_fault, "pause_s": 0.3}
    await post(client, worker, "/sim/faults", faults)
    begun = time.monotonic()
    async with client.post(worker.url + "/kv_cache_events") as response:
        assert response.status == status
        text = await response.text()
    assert text.startswith({"error": "{", "garbage": "<", "hang": "["}[drain_fault])
    assert (time.monotonic() - begun >= 0.3) == (drain_fault == "hang")
    await post(client, worker, "/sim/faults", {})
    assert (await drain(client, worker) == []) == (drain_fault == "hang")


async def test_a_restart(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Ids from 0 again, `created` first; unheard, the ids go on and nothing says so."""
    worker = await start_worker(SMALL)
    await ask(client, worker, "word " * 40)
    await drain(client, worker)
    await post(client, worker, "/sim/restart", {})
    await ask(client, worker, "word " * 40)
    events = await drain(client, worker)
    assert [event["event_id"] for event in events] == [0, 1, 2]
    assert events[0]["data"]["type"] == "created"
    await post(client, worker, "/sim/restart", {"unheard": True})
    await ask(client, worker, "word " * 40)
    events = await drain(client, worker)
    assert [event["event_id"] for event in events] == [4, 5]
    assert events[0]["data"]["type"] == "stored"


async def test_a_restart_of_two_ranks(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Each says so; what waited in the buffer is gone with the process."""
    worker = await start_worker(msgspec.structs.replace(SMALL, data_parallel_size=2))
    await ask(client, worker, "word " * 40)
    await post(client, worker, "/sim/restart", {})
    events = await drain(client, worker)
    assert [
        (event["attention_dp_rank"], event["event_id"], event["data"]["type"])
        for event in events
    ] == [(0, 0, "created"), (1, 0, "created")]


async def test_a_reset(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """There is no event for it: all blocks are removed."""
    worker = await start_worker(SMALL)
    await ask(client, worker, "word " * 40)
    held = worker.cache.held
    await drain(client, worker)
    assert await post(client, worker, "/sim/reset?flush=1", {}) == (
        200, {"success": True},
    )  # fmt: skip
    (removed,) = await drain(client, worker)
    assert len(removed["data"]["block_hashes"]) == held
    assert worker.cache.held == 0


async def test_adapters_and_salts(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """They keep blocks apart, and only the names of these tell."""
    worker = await start_worker(SMALL)
    adapter = {"lora_name": "fr", "lora_int_id": 7, "lora_path": "/loras/fr"}
    await drain(client, worker)
    told = []
    for fields in ({}, {"lora_request": adapter}, {"cache_salt": "s"}):
        answer = await chat(
            client, worker, model="m", messages=LONG, max_tokens=1, **fields
        )
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        (event,) = await drain(client, worker)
        told.append(event["data"]["blocks"])
    names = {block["block_hash"] for blocks in told for block in blocks}
    assert len(names) == sum(map(len, told))
    for blocks in told:
        for block in blocks:
            del block["block_hash"]
    assert told[0] == told[1] == told[2]
    body = {"model": "m", "messages": LONG, "lora_request": {"lora_name": "fr"}}
    status, error = await post(client, worker, CHAT, body)
    assert status == 400
    assert "lora_int_id" in str(error)


async def test_without_events(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """As with an event buffer of size 0, which is how the engine ships."""
    worker = await start_worker(msgspec.structs.replace(SMALL, kv_events=False))
    await ask(client, worker, "word " * 40)
    assert await drain(client, worker) == []
