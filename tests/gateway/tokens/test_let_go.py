"""Answers made of ids are freed when they are over: none waits for the collector."""

from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from gateway.tokens.asking import Asking
from gateway.tokens.translation import Translation
from gateway.upstreams.exchange import Exchange
from gateway.upstreams.upstream_response import UpstreamResponse
from tests.collected import count, uncollected, until_gone
from tests.gateway.tokens.rig import TOKENS, ask, chat, streaming
from tests.running import StartGateway, StartWorker, until

OURS = (Asking, Exchange, Translation, UpstreamResponse)
End = Callable[[aiohttp.ClientSession, str], Awaitable[None]]


async def whole(client: aiohttp.ClientSession, url: str) -> None:
    """An answer at once."""
    assert (await ask(client, url, chat())).status == 200


async def streamed(client: aiohttp.ClientSession, url: str) -> None:
    """A stream to its end."""
    assert (await ask(client, url, chat(stream=True))).status == 200


async def stopped(client: aiohttp.ClientSession, url: str) -> None:
    """A stream that the gateway has the engine stop."""
    body = chat(stream=True, stop=["e"], max_tokens=200)
    assert (await ask(client, url, body)).status == 200


async def several(client: aiohttp.ClientSession, url: str) -> None:
    """Several prompts in one stream."""
    body = {"prompt": ["one", "two"], "stream": True, "max_tokens": 4}
    assert (await ask(client, url, body, "/v1/completions")).status == 200


async def at_once(client: aiohttp.ClientSession, url: str) -> None:
    """Several prompts' answers at once."""
    body = {"prompt": ["one", "two"], "max_tokens": 4}
    assert (await ask(client, url, body, "/v1/completions")).status == 200


async def one_refused(client: aiohttp.ClientSession, url: str) -> None:
    """Several prompts, of which the worker refuses one."""
    body = {"prompt": [[9707], [99_999_999]], "max_tokens": 200}
    assert (await ask(client, url, body, "/v1/completions")).status == 400


async def one_refused_in_a_stream(client: aiohttp.ClientSession, url: str) -> None:
    """The same, streamed: it ends with an error.

    A connection that waits for its next request has that of the last one.
    """
    body = {"prompt": [[9707], [99_999_999]], "stream": True, "max_tokens": 200}
    closing = {"Connection": "close"}
    asked = client.post(url + "/v1/completions", json=body, headers=closing)
    async with asked as response:
        assert "upstream_refused" in await response.text()


async def refused(client: aiohttp.ClientSession, url: str) -> None:
    """A chat that cannot be rendered."""
    assert (await ask(client, url, chat("no message"))).status == 400


async def unreadable(client: aiohttp.ClientSession, url: str) -> None:
    """A call of the engine's own that nobody can read."""
    path = "/inference/v1/generate"
    assert (await ask(client, url, {"token_ids": "none"}, path)).status >= 400


async def left(client: aiohttp.ClientSession, url: str) -> None:
    """A client that leaves in the middle."""
    async with streaming(client, url, chat(max_tokens=500)) as response:
        await response.content.readany()


@pytest.mark.parametrize(
    "end",
    [
        whole,
        streamed,
        stopped,
        several,
        at_once,
        one_refused,
        one_refused_in_a_stream,
        refused,
        unreadable,
        left,
    ],
)
async def test_an_answer(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    end: End,
) -> None:
    """However it ends."""
    worker = await start_worker(TOKENS)
    gateway = await start_gateway(worker)
    known = gateway.gateway.pool.get(worker.url)
    assert known is not None
    await until(lambda: known.api == "tokens")
    await whole(client, gateway.url)
    with uncollected():
        before = count(*OURS)
        for _ in range(5):
            await end(client, gateway.url)
        await until(lambda: known.inflight_requests == 0)
        # The gateway's own looks at its workers come and go meanwhile.
        await until_gone(before + 2, *OURS)
