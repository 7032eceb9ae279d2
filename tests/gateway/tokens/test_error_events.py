"""Workers that take ids and say themselves, in their stream, what broke it."""

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.gateway.scripted import LISTING, idle
from tests.gateway.tokens.breaking import BODY, HEAD, before, breaking, chunk, event
from tests.gateway.tokens.rig import CHAT, COMPLETIONS
from tests.proxy.raw import LAST_CHUNK, RawWorker, WorkerConnection
from tests.running import Running, StartGateway

ERROR = {"error": {"message": "engine died", "type": "InternalServerError"}}
TOLD = b'data: {"error": {"message": "engine died", "type": "InternalServerError"}}\n\n'
DONE = b"data: [DONE]\n\n"


async def streamed(
    gateway: Running, client: aiohttp.ClientSession, body: Any, path: str = CHAT
) -> bytes:
    """A stream to its end."""
    sent = body | {"stream": True}
    async with asyncio.timeout(5), client.post(gateway.url + path, json=sent) as answer:
        return await answer.read()


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (b"", TOLD),
        (LAST_CHUNK, TOLD),
        (b"5\r\ndata:", TOLD),
        (event(b"[DONE]"), TOLD + DONE),
        (event(b"[DONE]") + LAST_CHUNK, TOLD + DONE),
        (chunk([9707], "stop") + event(b"[DONE]") + LAST_CHUNK, TOLD + DONE),
    ],
)
async def test_an_error_is_the_end(
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    end: bytes,
    last: bytes,
) -> None:
    """However the body ends then: the client sees one error, and no failure counts."""
    async with breaking(chunk([9707]), event(ERROR), end) as raw:
        gateway = await before(start_gateway, raw)
        said = await streamed(gateway, client, BODY)
        assert b'"content":"Hello"' in said
        assert said.endswith(last)
        assert said.count(b"error") == TOLD.count(b"error")
        assert await gateway.metric("upstream_failures_total") == 0
        await idle(gateway)


async def test_a_worker_that_holds_on_after_an_error(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """It holds nobody up, and is told that nobody waits."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if b"/inference/v1/generate" in request:
                await connection.send(HEAD + chunk([9707]) + event(ERROR))
            elif not request.startswith(b"POST"):
                await connection.send(LISTING)

    async with RawWorker(script) as raw:
        gateway = await before(start_gateway, raw)
        said = await streamed(gateway, client, BODY)
        assert said.endswith(TOLD)
        assert any(b"/abort_requests" in request for request in raw.requests)


async def test_the_error_of_one_prompt_ends_all(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """Nothing follows it, and what the other prompts generate is aborted."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                await connection.send(LISTING)
            elif b"-1\r\n" in request.partition(b"\r\n\r\n")[0] + b"\r\n":
                await asyncio.sleep(0.1)
                await connection.send(HEAD + event(ERROR) + event(b"[DONE]"))
            else:
                await connection.send(HEAD + chunk([9707]))
                await connection.closed_by_peer()
                return

    async with RawWorker(script) as raw:
        gateway = await before(start_gateway, raw)
        body = {"prompt": ["one", "two", "three"], "max_tokens": 5}
        said = await streamed(gateway, client, body, COMPLETIONS)
        assert said.endswith(TOLD + DONE)
        assert said.count(b'"text":"Hello"') == 2
        await idle(gateway)


@pytest.mark.parametrize("end", [b"", b"5\r\ndata:"])
async def test_a_body_cut_after_all_was_said(
    start_gateway: StartGateway, client: aiohttp.ClientSession, end: bytes
) -> None:
    """A connection that closes after [DONE] takes nothing from the answer."""
    stream = [chunk([9707], "length"), event(b"[DONE]"), end]
    async with breaking(*stream) as raw:
        gateway = await before(start_gateway, raw)
        said = await streamed(gateway, client, BODY)
        assert said.endswith(DONE)
        assert b"error" not in said
        assert await gateway.metric("upstream_failures_total") == 0
