"""Clients that leave while a worker that takes token ids generates for them."""

import asyncio
import json

import aiohttp
import msgspec
import pytest

from tests.gateway.scripted import LISTING, idle
from tests.gateway.tokens.breaking import BODY
from tests.gateway.tokens.breaking import TOKENS as DECLARED
from tests.gateway.tokens.rig import CHAT, COMPLETIONS, TOKENS, ask, chat, streaming
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
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


class Silent:
    """A worker that answers nothing; the names that it was asked for, and told of."""

    def __init__(self) -> None:
        self.raw = RawWorker(self._script)
        self.asked: list[str] = []
        self.aborted: list[str] = []

    async def _script(self, connection: WorkerConnection) -> None:
        while request := await connection.request():
            body = request.partition(b"\r\n\r\n")[2]
            if b"/abort_requests" in request:
                self.aborted += json.loads(body)["request_ids"]
                await connection.send(json_answer(b"{}"))
            elif request.startswith(b"POST"):
                self.asked.append("generate-tokens-" + json.loads(body)["request_id"])
            else:
                await connection.send(LISTING)

    @property
    def told(self) -> bool:
        """Whether it knows that nobody waits for any of them."""
        return sorted(self.asked) == sorted(self.aborted) != []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompts", [0, 1, 2])
async def test_a_client_that_leaves_before_an_answer_begins(
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    stream: bool,
    prompts: int,
) -> None:
    """The engine hears of it: what stands before it may hold its connection open."""
    body = BODY | {"stream": stream}
    if prompts:
        body |= {"prompt": ["a prompt"] * prompts}
    path = COMPLETIONS if prompts else CHAT
    silent = Silent()
    async with silent.raw:
        gateway = await start_gateway(silent.raw.url, worker_api=DECLARED)
        leaving = asyncio.create_task(ask(client, gateway.url, body, path))
        # Those of a stream are sent once it has begun.
        sent = max(prompts, 1) if not stream else 1
        await until(lambda: len(silent.asked) == sent)
        leaving.cancel()
        await until(lambda: {*silent.asked} <= {*silent.aborted})
        await idle(gateway)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_worker_that_is_too_late(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stream: bool
) -> None:
    """What is given up goes on nowhere."""
    silent = Silent()
    async with silent.raw:
        gateway = await start_gateway(
            silent.raw.url, worker_api=DECLARED, first_byte_timeout=0.2
        )
        told = await ask(client, gateway.url, BODY | {"stream": stream})
        assert told.status == 504, told.text
        await until(lambda: silent.told)
