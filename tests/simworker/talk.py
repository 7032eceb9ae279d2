"""What tests do with a running worker: call it, follow its events, wait."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import zmq
import zmq.asyncio

from kvindex.events import EventBatch
from kvindex.wire.vllm import decode_batch, decode_frames
from simworker.server import SimWorker
from tests.simworker import captures

CHAT = "/v1/chat/completions"


class Subscriber:
    """Collects a worker's event batches."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket
        self.decode: Callable[[bytes], EventBatch] = decode_batch
        self.sequences: list[int] = []

    async def batches(self, until: int) -> list[EventBatch]:
        """The batches up to number `until - 1`."""
        found = []
        async with asyncio.timeout(5):
            while not self.sequences or self.sequences[-1] < until - 1:
                frames = await self._socket.recv_multipart()
                _, sequence, payload = decode_frames(frames)
                self.sequences.append(sequence)
                found.append(self.decode(payload))
        return found


@asynccontextmanager
async def subscribed(worker: SimWorker) -> AsyncIterator[Subscriber]:
    """A subscriber to all of a worker's events from now on."""
    assert worker.kv_endpoint is not None
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.connect(worker.kv_endpoint)
        await asyncio.sleep(0.5)
        yield Subscriber(socket)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is true, two seconds at most on an idle machine."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


async def chat(client: aiohttp.ClientSession, worker: SimWorker, **body: Any) -> Any:
    """One chat call; its answer."""
    body = {"messages": [{"role": "user", "content": "hi"}]} | body
    async with client.post(worker.url + CHAT, json=body) as response:
        assert response.status == 200
        return await response.json()


async def get(client: aiohttp.ClientSession, worker: SimWorker, path: str) -> Any:
    """The JSON of a GET."""
    async with client.get(worker.url + path) as response:
        assert response.status == 200
        return await response.json()


def metric(page: str, name: str) -> float:
    """The value of a metric's first sample."""
    line = next(line for line in page.splitlines() if line.startswith(name))
    return float(line.split()[-1])


async def post(
    client: aiohttp.ClientSession,
    worker: SimWorker,
    path: str,
    body: Any,
    **headers: str,
) -> tuple[int, Any]:
    """The status of a POST, and its JSON or the events of its stream."""
    url = worker.url + path
    async with client.post(url, json=body, headers=headers) as response:
        text = await response.text()
        if response.headers["Content-Type"].startswith("text/event-stream"):
            return response.status, captures.sse_events(text)
        return response.status, json.loads(text)


def openai_client(worker: SimWorker) -> openai.AsyncOpenAI:
    """The official client; it tries nothing again."""
    return openai.AsyncOpenAI(
        base_url=f"{worker.url}/v1", api_key="none", max_retries=0
    )


async def streams_as_whole(api: openai.AsyncOpenAI) -> None:
    """A chat that is streamed says what it says as a whole."""
    whole = await api.chat.completions.create(
        model="m", max_completion_tokens=8, seed=1, logprobs=True, top_logprobs=1,
        messages=[{"role": "user", "content": "hi"}],
    )  # fmt: skip
    stream = await api.chat.completions.create(
        model="m", max_completion_tokens=8, seed=1, stream=True,
        messages=[{"role": "user", "content": "hi"}],
    )  # fmt: skip
    text = ""
    async for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == whole.choices[0].message.content
