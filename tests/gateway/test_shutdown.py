"""How a serving process ends: what it says, what it still serves, and for how long."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from subprocess import Popen

import aiohttp
import pytest

from tests.gateway.command import serving
from tests.gateway.scripted import LISTING
from tests.proxy.raw import (
    CHAT,
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    chunk,
    event,
)

WAIT_S = 20.0


@asynccontextmanager
async def streaming(events: int, gap_s: float) -> AsyncIterator[str]:
    """A worker that streams so many events; its URL."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                await connection.send(LISTING)
                continue
            await connection.send(SSE_HEAD)
            for number in range(events):
                await connection.send(chunk(event(number)))
                await asyncio.sleep(gap_s)
            await connection.send(LAST_CHUNK)

    async with RawWorker(script) as worker:
        yield worker.url


@contextmanager
def gateway(worker: str, delay: str, grace: str) -> Iterator[tuple[Popen[str], str]]:
    """A gateway process in front of one worker."""
    words = ("--workers", worker, "--host", "127.0.0.1", "--port", "0",
             "--render", "never", "--drain-delay", delay,
             "--drain-timeout", grace)  # fmt: skip
    with serving(*words) as served:
        yield served


async def status(client: aiohttp.ClientSession, url: str) -> int:
    """The status of a GET; 0 where nobody listens."""
    try:
        async with client.get(url) as response:
            return response.status
    except aiohttp.ClientConnectionError:
        return 0


async def ended(process: "Popen[str]") -> int:
    """The exit status, soon."""
    return await asyncio.to_thread(process.wait, WAIT_S)


@asynccontextmanager
async def started(
    worker: str, delay: str, grace: str
) -> AsyncIterator[tuple["Popen[str]", str]]:
    """`gateway`, while the worker goes on in this process."""
    context = gateway(worker, delay, grace)
    try:
        yield await asyncio.to_thread(context.__enter__)
    finally:
        await asyncio.to_thread(context.__exit__, *sys.exc_info())


async def test_sigterm_is_a_graceful_end(client: aiohttp.ClientSession) -> None:
    """Not ready at once, all served for a while, streams to their end; status 0."""
    async with streaming(30, 0.1) as worker, started(worker, "1", "10") as served:
        process, url = served
        assert await status(client, url + "/ready") == 200
        async with RawClient(int(url.rpartition(":")[2])) as stream:
            await stream.post(CHAT)
            await stream.head()
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert await status(client, url + "/ready") == 503
            assert await status(client, url + "/health") == 200
            assert await status(client, url + "/v1/models") == 200
            await asyncio.sleep(1.2)
            assert await status(client, url + "/health") == 0
            pieces = [await stream.chunk() for _ in range(31)]
        assert pieces == [event(number) for number in range(30)] + [b""]
        assert await ended(process) == 0


@pytest.mark.parametrize("grace", ["0.5", "0"])
async def test_a_stream_that_does_not_end_is_cut(grace: str) -> None:
    """After --drain-timeout, and is told so; that is no failure of the gateway."""
    async with streaming(1000, 0.05) as worker, started(worker, "0", grace) as served:
        process, url = served
        async with RawClient(int(url.rpartition(":")[2])) as stream:
            await stream.post(CHAT)
            await stream.head()
            await asyncio.sleep(0.2)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert await ended(process) == 0
            assert float(grace) <= time.monotonic() - begun < 10
            pieces = list[bytes]()
            while piece := await stream.chunk():
                pieces.append(piece)
        assert pieces[:2] == [event(0), event(1)]
        assert b'"code":"going_away"' in pieces[-1]
        assert sum(b"error" in piece for piece in pieces) == 1
        assert b"[DONE]" not in b"".join(pieces)


async def test_a_client_that_reads_nothing_holds_nothing_up() -> None:
    """What it was told waits for it in vain."""
    async with streaming(10**6, 0) as worker, started(worker, "0", "0.5") as served:
        process, url = served
        async with RawClient(int(url.rpartition(":")[2]), limit=1024) as stream:
            await stream.post(CHAT)
            await stream.head()
            await asyncio.sleep(1)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert await ended(process) == 0
            assert 0.5 <= time.monotonic() - begun < 10


async def test_a_second_signal_ends_it_now(client: aiohttp.ClientSession) -> None:
    """Whatever is still open."""
    async with streaming(1000, 0.05) as worker, started(worker, "30", "30") as served:
        process, url = served
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert await status(client, url + "/ready") == 503
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_these_do_not_wait_for_others(number: signal.Signals) -> None:
    """Who presses Ctrl-C, or closes the terminal, wants it to end: without a delay."""
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("ignored by whoever started the tests, as nohup does")
    async with streaming(1, 0) as worker, started(worker, "30", "5") as served:
        process, _ = served
        begun = time.monotonic()
        process.send_signal(number)
        assert await ended(process) == 0
        assert time.monotonic() - begun < 15


@pytest.mark.parametrize("kind", [b"application/json", b"application/octet-stream"])
async def test_an_upload_that_has_begun_is_read_on(kind: bytes) -> None:
    """Held whole or passed on as it comes: its rest may come after the delay."""
    async with streaming(1, 0) as worker, started(worker, "0.2", "10") as served:
        process, url = served
        async with RawClient(int(url.rpartition(":")[2])) as upload:
            head = b"POST /v1/files HTTP/1.1\r\nHost: g\r\nContent-Type: %b\r\n" % kind
            await upload.send(head + b"Content-Length: 9\r\n\r\n" + CHAT[:4])
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.7)
            await upload.send(b"12345")
            answer = await upload.head()
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert await upload.chunk() == event(0)
        assert await ended(process) == 0
        assert time.monotonic() - begun < 5


async def test_answers_say_that_the_connection_ends() -> None:
    """Once it is leaving, so that clients go elsewhere and meet no closed port."""
    async with streaming(1, 0) as worker, started(worker, "1", "10") as served:
        process, url = served
        port = int(url.rpartition(":")[2])
        for signalled in (False, True):
            if signalled:
                process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.2)
            async with RawClient(port) as client:
                await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
                own, _ = await client.answer()
            async with RawClient(port) as client:
                await client.post(CHAT)
                relayed = await client.head()
            for head in (own, relayed):
                assert (b"\r\nconnection: close\r\n" in head.lower()) is signalled
        assert await ended(process) == 0
