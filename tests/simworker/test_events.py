"""A worker's event stream over real sockets: it tells what the cache holds."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kvindex.blocks import unpack_ids
from kvindex.events import BlockRemoved, BlockStored
from tests.running import StartWorker
from tests.simworker import captures
from tests.simworker.conftest import FAST
from tests.simworker.talk import chat, get, metric, subscribed


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
    assert metric(after, "process_start_time_seconds") > metric(
        before, "process_start_time_seconds"
    )


async def test_without_events(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """As engines ship: no endpoint, an empty list of sources, the same answers."""
    worker = await start_worker(msgspec.structs.replace(FAST, kv_events=False))
    await chat(client, worker)
    assert worker.kv_endpoint is None
    assert worker.replay_endpoint is None
    assert await get(client, worker, "/kv_event_sources") == {}


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
