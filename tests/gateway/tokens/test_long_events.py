"""Events that are too long for the event loop: threads turn them into text."""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from gateway.threads import QueueFull
from gateway.tokens.completion import CompletionWriter
from gateway.tokens.generated import Chunk
from render.body import Json
from tests.gateway.scripted import LISTING, idle
from tests.gateway.tokens.breaking import BODY, HEAD, before, choice, chunk, event
from tests.gateway.tokens.rig import COMPLETIONS, ask
from tests.proxy.raw import LAST_CHUNK, RawWorker, WorkerConnection, json_answer
from tests.running import Running, StartGateway

END = event(b"[DONE]") + LAST_CHUNK
NO_STOPS = json_answer(
    b'{"error": {"message": "stop strings are not supported"}}',
    status=b"400 Bad Request",
)
PROMPTS, CHOICES, IDS = 12, 16, 4000


def choices(ids: list[int], finish: str | None = None) -> bytes:
    """An event with a few ids of all choices."""
    given = [choice(ids, finish) | {"index": index} for index in range(CHOICES)]
    return event({"choices": given})


def by_turns() -> RawWorker:
    """A worker whose every other answer comes in one long read, the rest in many."""
    turns = itertools.count()

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                await connection.send(LISTING)
            elif next(turns) % 2:
                await connection.send(HEAD + choices([9707] * 2000, "length") + END)
            else:
                await connection.send(HEAD)
                for _ in range(20):
                    await connection.send(choices([9707] * 5))
                    await asyncio.sleep(0.001)
                await connection.send(choices([], "length") + END)

    return RawWorker(script)


async def test_several_prompts_have_one_writer(
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a thread reads of one does not meet what the loop reads of another."""
    inside: list[int] = []
    feed = CompletionWriter.feed

    def watched(self: CompletionWriter, prompt: int, read: Chunk) -> list[Json]:
        inside.append(prompt)
        assert inside == [prompt]
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)
        told = feed(self, prompt, read)
        inside.remove(prompt)
        return told

    monkeypatch.setattr(CompletionWriter, "feed", watched)
    async with by_turns() as raw:
        gateway = await before(start_gateway, raw)
        body = {
            "prompt": ["one"] * PROMPTS,
            "n": CHOICES,
            "stream": True,
            "max_tokens": 9,
        }
        options = {"stream_options": {"include_usage": True}}
        for _ in range(2):
            told = await ask(client, gateway.url, body | options, COMPLETIONS)
            assert told.text.count('"finish_reason":"length"') == PROMPTS * CHOICES
            usage = told.events[-1]["usage"]
            assert usage["completion_tokens"] == PROMPTS // 2 * CHOICES * (2000 + 100)
        await idle(gateway)


def held_up(first: Callable[[], Awaitable[None]]) -> RawWorker:
    """A worker that looks for no stop strings; before a long answer, `first` is run."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                await connection.send(LISTING)
            elif b'"stop":["zz"]' in request:
                await connection.send(NO_STOPS)
            elif b"/abort_requests" in request:
                await connection.send(json_answer(b"{}"))
            else:
                await first()
                await connection.send(HEAD + chunk([9707] * IDS, "length") + END)

    return RawWorker(script)


@pytest.mark.parametrize("stops", [None, ["zz"]])
async def test_what_has_begun_is_never_too_much(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stops: list[str] | None
) -> None:
    """Where renderings fill all there is, an answer waits its turn, and is whole."""
    running: list[Running] = []
    release = threading.Event()
    waiting: list[asyncio.Future[bool]] = []

    async def fill() -> None:
        threads = running[0].gateway.endpoint_threads
        queue = running[0].gateway.config.render_queue
        for _ in range(queue):
            work = threads.run(lambda: release.wait(10))
            waiting.append(asyncio.ensure_future(work))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await threads.run(lambda: None)
        asyncio.get_running_loop().call_later(0.3, release.set)

    async with held_up(fill) as raw:
        running.append(await before(start_gateway, raw))
        body = BODY | {"stream": stops is None, "stop": stops}
        told = await ask(client, running[0].url, body)
        assert told.status == 200, told.text
        assert told.text.count("Hello" * IDS) == 1
        assert await asyncio.gather(*waiting) == [True] * len(waiting)
