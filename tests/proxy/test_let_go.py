"""What is over is freed at once: nothing of a request waits for the collector.

That runs seldom on a gateway, so thousands of prompts and answers would wait for it.
"""

import asyncio

import pytest

from gateway.request.peek import Peeked
from gateway.upstreams.exchange import Exchange
from gateway.upstreams.response_parser import ResponseParser
from gateway.upstreams.upstream_response import UpstreamResponse
from tests.collected import count, uncollected, until_gone
from tests.proxy.conftest import GatewayFor
from tests.proxy.raw import (
    CHAT,
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    answering,
    chunk,
    event,
    json_answer,
)

OURS = (Exchange, ResponseParser, UpstreamResponse)


def dying(*parts: bytes) -> Script:
    """Answers with these parts, and resets the connection."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        for part in parts:
            await connection.send(part)
            await asyncio.sleep(0.01)
        connection.reset()

    return script


ANSWERS = {
    "whole": answering(json_answer(b"{}")),
    "an error": answering(json_answer(b"{}", status=b"400 Bad Request")),
    "a stream": answering(SSE_HEAD, chunk(event(1)), LAST_CHUNK, gap_s=0.01),
    "a stream at once": answering(SSE_HEAD + chunk(event(1)) + LAST_CHUNK),
    "a broken stream": dying(SSE_HEAD, chunk(event(1))),
    "nothing": dying(),
    "not HTTP": answering(b"ICY 200 OK\r\n\r\n"),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer(gateway_for: GatewayFor, answer: str) -> None:
    """However it ends."""
    with uncollected():
        before = count(*OURS)
        async with RawWorker(ANSWERS[answer]) as worker, gateway_for(worker) as gateway:
            async with RawClient(gateway.port) as client:
                await client.post(CHAT)
                await client.answer()
                assert count(*OURS) > before  # its account is looked at still
            gateway.watches.pop().error = None
            await until_gone(before, *OURS)


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"]
)
async def test_a_prompt_whose_answer_streams(
    gateway_for: GatewayFor, path: str
) -> None:
    """What was read of a body has parts of it: neither is kept for the stream."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        await connection.closed_by_peer()

    text = b"x" * 1_000
    body = b'{"model":"m","stream":true,"messages":"%b","input":"%b"}' % (text, text)
    with uncollected():
        before = count(Peeked)
        async with (
            RawWorker(script) as worker,
            gateway_for(worker) as gateway,
            RawClient(gateway.port) as client,
        ):
            await client.post(body, path=path.encode())
            await client.head()
            assert await client.chunk() == event(1)
            assert count(Peeked) == before


async def test_a_client_that_leaves(gateway_for: GatewayFor) -> None:
    """In the middle of a stream."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        await connection.closed_by_peer()

    with uncollected():
        before = count(*OURS)
        async with RawWorker(script) as worker, gateway_for(worker) as gateway:
            async with RawClient(gateway.port) as client:
                await client.post(CHAT)
                await asyncio.sleep(0.1)
                assert count(*OURS) > before
            await asyncio.wait_for(gateway.watches[0].released.wait(), 5)
            gateway.watches.clear()
            await until_gone(before, *OURS)
