"""Clients that leave: nothing of their requests stays."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from router.worker import WorkerState
from tests.gateway.scripted import (
    ANSWER,
    CHAT,
    LISTING,
    idle,
    posts,
    refusal,
    state,
    worker,
)
from tests.proxy.raw import (
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    answering,
)
from tests.running import Running, StartGateway, until

DEAD = "http://127.0.0.1:1"

pytestmark = pytest.mark.usefixtures("never_blocks")


async def leave(gateway: Running, wait: Callable[[], Any]) -> None:
    """Send a chat, wait for something, and go without the answer."""
    async with RawClient(gateway.port) as client:
        await client.post(json.dumps(CHAT).encode())
        await until(wait)


async def gone(gateway: Running) -> None:
    """The request has left no trace but a count."""
    ledgers = [
        ledger
        for known in gateway.gateway.pool.workers
        for ledger in known.ledgers.values()
    ]
    await until(lambda: all(ledger.requests == 0 for ledger in ledgers), 1.0)
    await idle(gateway)
    counted = (
        'kv_gateway_requests_total{endpoint="chat_completions",status="client_gone"}'
    )
    assert (await gateway.metrics())[counted] == 1


async def _mute(connection: WorkerConnection) -> None:
    while request := await connection.request():
        if request.startswith(b"POST"):
            await connection.closed_by_peer()
            return
        await connection.send(LISTING)


MUTE: Script = _mute


async def test_leaving_before_the_first_byte(start_gateway: StartGateway) -> None:
    """The worker's connection is closed within a second, and nothing is in flight."""
    async with RawWorker(MUTE) as mute:
        gateway = await start_gateway(mute.url)
        await leave(gateway, lambda: posts(mute) == 1)
        await gone(gateway)
        assert await gateway.metric("client_disconnects_total") == 1
        assert state(gateway, mute) is WorkerState.ready


async def test_leaving_while_rendering(start_gateway: StartGateway) -> None:
    """A request whose client left is sent to nobody."""
    async with RawWorker(MUTE) as mute:
        gateway = await start_gateway(mute.url, render_deadline=30.0)
        renders: list[bytes] = []

        def slow(body: bytes) -> None:
            renders.append(body)
            time.sleep(0.3)

        renderers: Any = gateway.gateway.renderers
        renderers.find = lambda *names: type("Slow", (), {"render_chat": slow})
        await leave(gateway, lambda: bool(renders))
        await gone(gateway)
        await asyncio.sleep(0.4)
        assert posts(mute) == 0


async def test_leaving_while_connecting(start_gateway: StartGateway) -> None:
    """A connection attempt ends with its client."""
    async with RawWorker(answering(LISTING)) as slow:
        gateway = await start_gateway(slow.url)
        begun = asyncio.Event()

        async def never(*args: Any, **options: Any) -> None:
            begun.set()
            await asyncio.sleep(30)

        upstreams: Any = gateway.gateway.upstreams
        upstreams._connect = never
        await leave(gateway, begun.is_set)
        await gone(gateway)


async def test_nothing_is_left_of_many(start_gateway: StartGateway) -> None:
    """After many requests, ended in every way, no task and no booking is left."""
    async with (
        worker(ANSWER, refusal(b"503 X"), WorkerConnection.reset, ANSWER) as fickle,
        RawWorker(MUTE) as mute,
    ):
        gateway = await start_gateway(fickle.url, mute.url, DEAD, policy="round_robin")
        before = _gateway_tasks()

        async def one() -> None:
            async with RawClient(gateway.port) as client:
                await client.post(json.dumps(CHAT).encode())
                await asyncio.sleep(0.1)

        for _ in range(5):
            await asyncio.gather(*(one() for _ in range(10)))
        await until(lambda: _gateway_tasks() <= before, 3.0)
        await idle(gateway)


def _gateway_tasks() -> int:
    """The tasks that are not the raw workers' own."""
    names = [str(task.get_coro()) for task in asyncio.all_tasks()]
    workers_own = ("RawWorker.", "StreamReader.")
    return sum(not any(own in name for own in workers_own) for name in names)


@pytest.mark.parametrize(
    ("last", "disconnects"),
    [
        (b'{"error": {"message": "no more"}}', 0),
        (b'{"type": "error", "message": "no more"}', 0),
        (b"[DONE]", 0),
        (b'{"choices": [], "error": null}', 1),
    ],
)
async def test_leaving_at_what_ends_an_answer(
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    last: bytes,
    disconnects: int,
) -> None:
    """Clients close at an error, though the worker does not: they have their answer."""
    said = b"data: {}\n\ndata: " + last + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST"):
                await connection.send(head + said)
                await connection.closed_by_peer()
                return
            await connection.send(LISTING)

    async with RawWorker(script) as raw:
        gateway = await start_gateway(raw.url)
        url = f"{gateway.url}/v1/chat/completions"
        async with client.post(url, json=CHAT) as response:
            await response.content.readuntil(last)
            response.close()
        await gone(gateway)
        assert await gateway.metric("client_disconnects_total") == disconnects
