"""Reports from the field about load that nobody counted, and what they say of us."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from router.load import KV_FULL
from simworker.options import SimOptions
from tests.gateway.answering import Answer, Scripted
from tests.running import MODEL, SIM, Running, StartGateway, StartWorker, until

WORKERS, PREFIX, OWN = 8, 2_000, 6_000
"""Tokens that all prompts begin with, and those that each has of its own."""


def _holding(counts: list[int], number: int, all_there: asyncio.Barrier) -> Answer:
    """A worker that counts, and begins no answer before all requests are somewhere."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": "m"}]})
        counts[number] += 1
        await all_there.wait()
        return web.Response(body=b"data: [DONE]\n\n", content_type="text/event-stream")

    return answer


async def test_load_on_passed_through_routes_counts(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """One prefix, nothing but `/inference/v1/generate`: one engine got them all.

    By what is in flight where the prefix is, it is cheaper to prefill it anew at an
    engine that has nothing to do. None answers meanwhile, so none seems any quicker.
    vllm-project/router#179
    """
    counts, all_there = [0] * WORKERS, asyncio.Barrier(WORKERS)
    workers = [_holding(counts, number, all_there) for number in range(WORKERS)]
    gateway = await start_gateway(*[await scripted(worker) for worker in workers])

    async def ask(number: int) -> int:
        path = gateway.url + "/inference/v1/generate"
        begin = PREFIX + number * OWN
        ids = [*range(PREFIX), *range(begin, begin + OWN)]
        body = {"model": "m", "token_ids": ids, "stream": True, "sampling_params": {}}
        async with gateway.client.post(path, json=body) as answer:
            await answer.read()
            return answer.status

    assert {*await asyncio.gather(*map(ask, range(WORKERS)))} == {200}
    assert counts == [1] * WORKERS


BLOCKS, SIZE = 100, 16


def small(engine: str) -> SimOptions:
    """A worker with room for one long prompt, whose answer takes minutes."""
    room = {"blocks": BLOCKS, "block_size": SIZE, "speed": 1.0, "decode_rate": 0.1}
    return msgspec.structs.replace(SIM, engine=engine, **room)


def reported(gateway: Running) -> float:
    """The use of its first worker's KV cache, as that says."""
    report = gateway.gateway.pool.workers[0].report(0)
    return 0.0 if report is None else report.load.kv_usage or 0.0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
async def test_a_full_cache_is_believed(
    engine: str, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The worker says that its KV cache is full, our own count that it is idle.

    ai-dynamo/dynamo#7753
    """
    full, free = await start_worker(small(engine)), await start_worker(SIM)
    gateway = await start_gateway(full, free, load_interval=0.1)
    ids = list(range(SIZE * BLOCKS * 97 // 100))
    body: dict[str, Any] = {"model": MODEL, "prompt": ids, "stream": True}
    url = full.url + "/v1/completions"
    async with gateway.client.post(url, json=body | {"max_tokens": 16}) as others:
        assert others.status == 200
        await until(lambda: reported(gateway) >= KV_FULL)
        page = (await gateway.get("/gateway/workers"))["workers"][0]
        assert (page["inflight_requests"], page["load"][0]["full"]) == (0, True)
        usage = await gateway.metric("reported_kv_usage_ratio", worker=full.url)
        assert usage >= KV_FULL
        for number in range(6):
            chat = [{"role": "user", "content": f"chat {number}"}]
            assert (await gateway.chat(chat)).worker == free.url
        others.close()
