"""The `/sim` routes: the truth, faults, restarts and resets, on request."""

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from kvindex.events import AllBlocksCleared, BlockRemoved, BlockStored
from simworker.server import SimWorker
from tests.running import StartWorker, until
from tests.simworker.conftest import FAST
from tests.simworker.talk import CHAT, chat, get, metric, post, subscribed

LONG = [{"role": "user", "content": "word " * 60}]


async def restart(client: aiohttp.ClientSession, worker: SimWorker, **how: Any) -> None:
    """A restart in place."""
    status, answer = await post(client, worker, "/sim/restart", how)
    assert (status, list(answer)) == (200, ["started"])


async def test_the_truth(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """What each rank holds, block by block, with its tokens if asked for."""
    worker = await start_worker(FAST)
    answer = await chat(
        client, worker, messages=LONG, max_tokens=20, return_token_ids=True,
        cache_salt="s",
    )  # fmt: skip
    said = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
    (rank,) = (await get(client, worker, "/sim/cache?tokens=1"))["ranks"]
    assert worker.publisher is not None
    assert (rank["rank"], rank["block_size"]) == (0, 16)
    assert rank["next_sequence"] == worker.publisher.next_sequence
    blocks = sorted(rank["blocks"], key=lambda block: block["number"])
    assert len(blocks) == (len(said) - 1) // 16
    parent = None
    for number, block in enumerate(blocks):
        assert block["token_ids"] == said[16 * number : 16 * (number + 1)]
        assert (block["parent"], block["media"], block["salt"]) == (
            parent,
            ["GPU"],
            "s",
        )
        parent = block["digest"]
    (rank,) = (await get(client, worker, "/sim/cache"))["ranks"]
    assert "token_ids" not in rank["blocks"][0]


async def test_a_restart_in_place(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Numbers from 0, an empty cache, a later start; HTTP never went away."""
    worker = await start_worker(FAST)
    assert worker.publisher is not None
    async with subscribed(worker) as subscriber:
        await chat(client, worker, messages=LONG)
        await subscriber.batches(worker.publisher.next_sequence)
        before = await page(client, worker)
        await restart(client, worker)
        assert worker.cache.held == 0
        subscriber.sequences.clear()
        answer = await chat(client, worker, messages=LONG)
        await subscriber.batches(worker.publisher.next_sequence)
    assert subscriber.sequences == list(range(worker.publisher.next_sequence))
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert started(await page(client, worker)) > started(before)


async def test_requests_outlive_a_restart(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Those that run or wait start over, also with blocks of another size."""
    worker = await start_worker(
        msgspec.structs.replace(FAST, decode_rate=2.0, max_running=2)
    )
    asked = [
        asyncio.create_task(
            chat(client, worker, messages=LONG, max_tokens=60, ignore_eos=True)
        )
        for _ in range(3)
    ]
    await until(lambda: worker.engine.running > 0)
    await restart(client, worker, block_size=32)
    answers = await asyncio.gather(*asked)
    assert {answer["usage"]["completion_tokens"] for answer in answers} == {60}
    assert worker.cache.used == 0
    assert worker.cache.held > 0
    assert worker.cache.block_size == 32
    assert worker.cache.capacity == (FAST.blocks - 1) // 2
    assert 'block_size="32"' in await page(client, worker)


async def test_a_restart_that_nobody_heard(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """The first batch that comes has a higher number than the last one before."""
    worker = await start_worker(FAST)
    async with subscribed(worker) as subscriber:
        await chat(client, worker, messages=LONG)
        assert worker.publisher is not None
        last = worker.publisher.next_sequence - 1
        before = started(await page(client, worker))
        await restart(client, worker, unheard=True, same_start=True)
        await chat(client, worker, messages=LONG)
        await subscriber.batches(worker.publisher.next_sequence)
    assert subscriber.sequences[: last + 2] == [*range(last + 1), last + 3]
    assert started(await page(client, worker)) == before


async def test_a_restart_that_reconnects(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """The sockets are closed and opened on the same ports."""
    worker = await start_worker(msgspec.structs.replace(FAST, replay_port=0))
    endpoints = worker.kv_endpoint, worker.replay_endpoint
    async with subscribed(worker) as subscriber:
        await restart(client, worker, reconnect=True)
        asked = asyncio.create_task(_ask_on(client, worker))
        await subscriber.batches(1)
        asked.cancel()
    assert (worker.kv_endpoint, worker.replay_endpoint) == endpoints


async def test_faults_are_played(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """On all ranks or on one; what was played is counted."""
    worker = await start_worker(msgspec.structs.replace(FAST, data_parallel_size=2))
    status, answer = await post(client, worker, "/sim/faults?rank=1", {"drop": 2})
    assert status == 200
    assert [rank["faults"]["drop"] for rank in answer["ranks"]] == [0, 2]
    body = {"messages": LONG, "max_tokens": 1}
    await post(client, worker, CHAT, body, **{"X-data-parallel-rank": "1"})
    (rank,) = (await get(client, worker, "/sim/faults?rank=1"))["ranks"]
    assert (rank["faults"]["drop"], rank["played"]) == (1, {"drop": 1})
    await post(client, worker, "/sim/faults", {})
    ranks = (await get(client, worker, "/sim/faults"))["ranks"]
    assert [rank["faults"]["drop"] for rank in ranks] == [0, 0]


async def test_faults_of_the_engine_itself(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """They are in the batches, from the start if an option says so."""
    faults = '{"wrong_parents": 1, "unknown_removals": 1}'
    worker = await start_worker(msgspec.structs.replace(FAST, faults=faults))
    async with subscribed(worker) as subscriber:
        await chat(client, worker, messages=LONG, max_tokens=40, ignore_eos=True)
        assert worker.publisher is not None
        batches = await subscriber.batches(worker.publisher.next_sequence)
    events = [event for batch in batches for event in batch.events]
    stored = [event for event in events if isinstance(event, BlockStored)]
    names = {name for event in stored for name in event.hashes}
    parents = [event.parent for event in stored if event.parent is not None]
    assert [parent in names for parent in parents].count(False) == 1
    (removed,) = [event for event in events if isinstance(event, BlockRemoved)]
    assert not names & set(removed.hashes)


async def test_a_reset(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Told with the next step, or at once; refused while a request runs."""
    worker = await start_worker(msgspec.structs.replace(FAST, decode_rate=1.0))
    assert worker.publisher is not None
    async with subscribed(worker) as subscriber:
        await chat(client, worker, messages=LONG, max_tokens=1)
        sent = worker.publisher.next_sequence
        assert await post(client, worker, "/sim/reset", {}) == (200, {"success": True})
        assert worker.publisher.next_sequence == sent
        await post(client, worker, "/sim/reset?flush=1", {})
        *_, last = await subscriber.batches(sent + 1)
    assert set(last.events) == {AllBlocksCleared()}
    asked = asyncio.create_task(chat(client, worker, messages=LONG, max_tokens=60))
    await until(lambda: worker.engine.running > 0)
    assert await post(client, worker, "/sim/reset", {}) == (200, {"success": False})
    await asked


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/sim/faults", {"dorp": 1}, "unknown field"),
        ("/sim/faults?rank=3", {}, "rank 3 is out of range [0, 1)."),
        ("/sim/faults?rank=x", {}, "rank x is out of range"),
        ("/sim/restart", {"block_size": 0}, "block_size must be from 1"),
        ("/sim/restart", [], "object"),
    ],
)
async def test_what_is_refused(
    client: aiohttp.ClientSession, worker: SimWorker, path: str, body: Any, why: str
) -> None:
    """In the engine's envelope, with a word that helps."""
    status, answer = await post(client, worker, path, body)
    assert status == 400
    assert why in answer["error"]["message"]


async def _ask_on(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """One request after the other, each another one."""
    for number in range(100):
        messages = [{"role": "user", "content": f"{number} " + "word " * 60}]
        await chat(client, worker, messages=messages)
        await asyncio.sleep(0.05)


async def page(client: aiohttp.ClientSession, worker: SimWorker) -> str:
    """vLLM's metrics."""
    async with client.get(worker.url + "/metrics") as response:
        return await response.text()


def started(metrics: str) -> float:
    """When the process says that it began."""
    return metric(metrics, "process_start_time_seconds")
