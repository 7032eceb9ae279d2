"""Clients that leave while a worker that takes token ids generates for them."""

import asyncio

import aiohttp
import msgspec
import pytest

from tests.gateway.tokens.rig import TOKENS, ask, chat, streaming
from tests.running import StartGateway, StartWorker, until

SLOW = msgspec.structs.replace(TOKENS, speed=1.0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_generation(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    stream: bool,
) -> None:
    """The engine stops, and what was booked is released."""
    worker = await start_worker(SLOW)
    gateway = await start_gateway(worker)
    body = chat(max_tokens=2000, ignore_eos=True)
    if stream:
        async with streaming(client, gateway.url, body) as response:
            await response.content.readany()
    else:
        leaving = asyncio.create_task(ask(client, gateway.url, body))
        await until(lambda: worker.ranks[0].runner.engine.running == 1)
        leaving.cancel()
    await until(lambda: worker.ranks[0].runner.aborted == 1)
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    await until(lambda: known.inflight_requests == 0)
    assert await gateway.metric("client_disconnects_total") == 1
    async with asyncio.timeout(5):
        assert (await ask(client, gateway.url, chat(max_tokens=2))).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_only_its_own(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    stream: bool,
) -> None:
    """Though another has the same X-Request-ID: engines abort by name."""
    worker = await start_worker(SLOW)
    gateway = await start_gateway(worker)
    stays = chat(max_tokens=100, ignore_eos=True, stream=stream)
    leaves = chat(max_tokens=2000, ignore_eos=True, stream=stream)
    other = asyncio.create_task(ask(client, gateway.url, leaves))
    running = asyncio.create_task(ask(client, gateway.url, stays))
    await until(lambda: worker.ranks[0].runner.engine.running == 2)
    other.cancel()
    told = await running
    choices = [e["choices"][0] for e in told.events] or told.body["choices"]
    assert choices[-1]["finish_reason"] == "length"
    assert told.headers["X-Request-ID"] == "same"
    assert worker.ranks[0].runner.aborted == 1
