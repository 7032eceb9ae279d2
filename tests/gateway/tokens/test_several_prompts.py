"""Several prompts of a completion at a worker that takes ids: none runs twice."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.tokens.together import AT_ONCE
from tests.gateway.scripted import LISTING, idle, refusal
from tests.gateway.tokens.breaking import HEAD, TOKENS, choice, chunk, event
from tests.gateway.tokens.rig import COMPLETIONS, ask
from tests.proxy.raw import LAST_CHUNK, RawWorker, WorkerConnection, json_answer
from tests.running import Running, StartGateway, until

GENERATE, ABORT = b"/inference/v1/generate", b"/inference/v1/abort_requests"
WHOLE = json_answer(json.dumps({"choices": [choice([9707], "length")]}).encode())
STREAM = HEAD + chunk([9707], "length") + event(b"[DONE]") + LAST_CHUNK
NO_STOPS = json_answer(
    b'{"error": {"message": "stop strings are not supported"}}',
    status=b"400 Bad Request",
)
BUSY = refusal(b"429 Too Many Requests")
Answer = Callable[[WorkerConnection, int, bytes], Awaitable[bytes | None]]
"""What to send for a prompt of a request; None: the connection is to end."""


def told(request: bytes) -> bytes:
    """The answer to a prompt, as it is asked for."""
    return STREAM if b'"stream":true' in request else WHOLE


async def taken(connection: WorkerConnection, prompt: int, request: bytes) -> bytes:
    """Every prompt is answered."""
    return told(request)


class Taker:
    """A worker that takes ids; `ran` counts the prompts that it answered, by name.

    It answers none before `at_once` of them are there.
    """

    def __init__(self, answer: Answer = taken, *, at_once: int = 1) -> None:
        self._answer = answer
        self._all_there = asyncio.Barrier(at_once)
        self.raw = RawWorker(self._script)
        self.ran: Counter[str] = Counter()
        self.aborted: list[str] = []

    async def _script(self, connection: WorkerConnection) -> None:
        while request := await connection.request():
            head, _, body = request.partition(b"\r\n\r\n")
            if ABORT in head:
                self.aborted += json.loads(body)["request_ids"]
                await connection.send(json_answer(b"{}"))
            elif GENERATE not in head:
                await connection.send(LISTING)
            else:
                name = json.loads(body)["request_id"]
                prompt = int(name.rpartition("-")[2], 16)
                async with asyncio.timeout(5):
                    await self._all_there.wait()
                answer = await self._answer(connection, prompt, request)
                if answer is None:
                    return
                if b" 200 OK\r\n" in answer:
                    self.ran[re.sub("-[0-9a-f]{16}-", "-", name)] += 1
                await connection.send(answer)


async def start(start_gateway: StartGateway, *takers: Taker) -> Running:
    """A gateway that tries these in turn."""
    urls = [taker.raw.url for taker in takers]
    return await start_gateway(*urls, worker_api=TOKENS, policy="round_robin")


def body(count: int, stream: bool = False, **more: Any) -> dict[str, Any]:
    """So many prompts."""
    prompts = [f"prompt {number}" for number in range(count)]
    return {"prompt": prompts, "max_tokens": 5, "stream": stream} | more


def once(count: int, request: str = "same") -> Counter[str]:
    """Each of so many prompts ran once."""
    return Counter(f"{request}-{prompt}" for prompt in range(count))


@pytest.mark.usefixtures("stale_at_any_time")
@pytest.mark.parametrize("stream", [False, True])
async def test_stale_connections(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stream: bool
) -> None:
    """Whatever prompt meets one is sent again, to the same worker."""

    async def stale(
        connection: WorkerConnection, prompt: int, request: bytes
    ) -> bytes | None:
        if sum(GENERATE in one for one in connection.requests) == 1:
            return told(request)
        connection.reset()
        return None

    one, other = Taker(stale), Taker()
    async with one.raw, other.raw:
        gateway = await start(start_gateway, one, other)
        count = AT_ONCE + 4
        for request in ("a", "b", "c", "d"):
            headers = {"X-Request-Id": request}
            got = await ask(
                client, gateway.url, body(count, stream), COMPLETIONS, **headers
            )
            assert got.status == 200, got.text
            assert got.text.count('"text":"Hello"') == count
            assert one.ran + other.ran >= once(count, request)
        assert {*(one.ran + other.ran).values()} == {1}
        assert await gateway.metric("upstream_failures_total") == 0
        await idle(gateway)


@pytest.mark.parametrize("late", [0, 1, AT_ONCE])
@pytest.mark.parametrize("status", [b"429 Too Many Requests", b"503 Later"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_worker_that_takes_some_prompts_only(
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    late: int,
    status: bytes,
    stream: bool,
) -> None:
    """No other worker gets them: those that it took would run twice."""

    async def some(connection: WorkerConnection, prompt: int, request: bytes) -> bytes:
        return refusal(status) if prompt == late else told(request)

    takers = [Taker(some), Taker(some)]
    async with takers[0].raw, takers[1].raw:
        gateway = await start(start_gateway, *takers)
        asked = body(AT_ONCE + 1, stream)
        async with client.post(gateway.url + COMPLETIONS, json=asked) as response:
            said = await response.text()
        ran = [taker for taker in takers if taker.ran]
        if stream and late == 0:  # its head came before any other was sent
            assert (response.status, ran) == (int(status[:3]), [])
        else:
            assert "upstream_refused" in said
            assert response.status == (200 if stream else 502)
            (one,) = ran
            assert {*one.ran.values()} == {1}
            await until(lambda: bool(one.aborted))
        await idle(gateway)


@pytest.mark.parametrize("stops", [None, ["zz"]])
async def test_a_worker_that_takes_no_prompt_leaves_them_to_another(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stops: list[str] | None
) -> None:
    """Busy, or not there; also where the other is asked without stop strings."""

    async def busy(connection: WorkerConnection, prompt: int, request: bytes) -> bytes:
        return BUSY

    async def stopless(
        connection: WorkerConnection, prompt: int, request: bytes
    ) -> bytes:
        return NO_STOPS if b'"stop":["zz"]' in request else told(request)

    one, other = Taker(busy), Taker(stopless)
    async with one.raw, other.raw:
        gateway = await start(start_gateway, one, other)
        for request in ("a", "b"):
            headers = {"X-Request-Id": request}
            got = await ask(
                client, gateway.url, body(3, stop=stops), COMPLETIONS, **headers
            )
            assert got.status == 200, got.text
        await one.raw.__aexit__(None, None, None)
        for request in ("c", "d"):
            headers = {"X-Request-Id": request}
            got = await ask(
                client, gateway.url, body(3, stop=stops), COMPLETIONS, **headers
            )
            assert got.status == 200, got.text
        assert one.ran == Counter()
        names = [once(3, request) for request in "abcd"]
        assert other.ran == sum(names, Counter())


async def test_a_worker_that_goes_away_in_the_middle(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """A prompt that finds it gone is not taken elsewhere: others were answered."""

    async def leaving(
        connection: WorkerConnection, prompt: int, request: bytes
    ) -> bytes | None:
        (server,) = [t.raw._server for t in takers if connection in t.raw.connections]
        assert server is not None
        server.close()
        closing = b"\r\nConnection: close\r\n\r\n"
        await connection.send(told(request).replace(b"\r\n\r\n", closing, 1))
        return None

    takers = [Taker(leaving, at_once=AT_ONCE) for _ in range(2)]
    async with takers[0].raw, takers[1].raw:
        gateway = await start(start_gateway, *takers)
        got = await ask(client, gateway.url, body(AT_ONCE + 4), COMPLETIONS)
        assert got.status == 502
        assert got.body["error"]["code"] == "upstream_connect_failed"
        asked = [[r for r in t.raw.requests if GENERATE in r] for t in takers]
        assert sorted(map(len, asked)) == [0, AT_ONCE]
        await idle(gateway)


async def test_all_prompts_of_a_whole_answer_are_there_together(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """None waits until the first one's answer is there; sixteen at a time."""
    taker = Taker(at_once=AT_ONCE)
    async with taker.raw:
        gateway = await start(start_gateway, taker)
        got = await ask(client, gateway.url, body(2 * AT_ONCE), COMPLETIONS)
        assert got.status == 200, got.text
        assert [c["index"] for c in got.body["choices"]] == [*range(2 * AT_ONCE)]
        assert taker.ran == once(2 * AT_ONCE)
