"""A gateway that serves, as its clients see it; helpers of the whole-gateway tests."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from gateway.app import Gateway
from kvindex.standing import FeedState
from router.worker import Worker
from simworker.options import SimOptions
from simworker.server import SimWorker

MODEL = "qwen3-demo"
WITH_EVENTS = SimOptions(port=0, speed=100.0, blocks=2048, served_model_name=(MODEL,))
"""A simulated worker that is fast enough for tests."""
SIM = msgspec.structs.replace(WITH_EVENTS, kv_events=False)
"""The same without events, as engines ship; its gateway starts sooner."""
WAIT_S = 10.0

StartWorker = Callable[..., Awaitable[SimWorker]]
StartGateway = Callable[..., Awaitable["Running"]]


class Served:
    """A server that serves, and what a client does with it."""

    def __init__(self, port: int, client: aiohttp.ClientSession) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.client = client

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        """The JSON of a GET."""
        async with self.client.get(self.url + path, **options) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        """The JSON answer to a JSON body."""
        async with self.client.post(self.url + path, json=body) as response:
            assert response.status == status, await response.text()
            return await response.json()

    async def metrics(self) -> dict[str, float]:
        """Every sample of the metrics page, `name{labels}` to value."""
        async with self.client.get(self.url + "/metrics") as response:
            page = await response.text()
        lines = [line for line in page.splitlines() if not line.startswith("#")]
        return {name: float(v) for name, v in (line.rsplit(" ", 1) for line in lines)}

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for sample, value in (await self.metrics()).items()
            if sample.partition("{")[0] == f"kv_gateway_{name}"
            and all(label in sample for label in wanted)
        )


class Running(Served):
    """A gateway that serves."""

    def __init__(
        self, gateway: Gateway, runner: web.AppRunner, client: aiohttp.ClientSession
    ) -> None:
        super().__init__(runner.addresses[0][1], client)
        self.gateway = gateway
        self._runner = runner

    async def close_port(self) -> None:
        """Break every connection, as if it were killed."""
        await self._runner.cleanup()

    async def chat(self, messages: list[dict[str, Any]], **fields: Any) -> "Answer":
        """A chat's answer, and which worker gave it."""
        body = {"model": MODEL, "messages": messages, "max_tokens": 8} | fields
        return await self.ask("/v1/chat/completions", body)

    async def ask(self, path: str, body: Mapping[str, Any]) -> "Answer":
        """A whole answer with its usage, and which worker gave it."""
        async with self.client.post(self.url + path, json=body) as response:
            assert response.status == 200, await response.text()
            return Answer(response.headers, await response.json())

    async def hits(self) -> tuple[float, float]:
        """Predicted and delivered hit tokens so far, of all workers."""
        predicted = await self.metric("predicted_hit_tokens_total")
        return predicted, await self.metric("delivered_hit_tokens_total")

    async def feed(self, worker: int = 0) -> dict[str, Any]:
        """A worker's first feed as `/gateway/workers` shows it."""
        page = await self.get("/gateway/workers")
        feed: dict[str, Any] = page["workers"][worker]["feeds"][0]
        return feed

    async def until_events_arrive(self, *workers: SimWorker) -> None:
        """Wait until the gateway has taken all that these workers had to tell."""
        for worker in workers:
            stream = worker.ranks[0].stream
            assert stream is not None
            known = self.gateway.pool.get(worker.url)
            assert known is not None
            wanted = stream.next_sequence - 1
            await until(partial(_has_seen, known, wanted))


class Answer:
    """A worker's answer to a chat or completion."""

    def __init__(self, headers: Mapping[str, str], body: Any) -> None:
        self.headers = headers
        self.body = body

    @property
    def worker(self) -> str:
        """The URL of the simulated worker that answered."""
        return self.headers["X-Sim-Worker"]

    @property
    def text(self) -> str:
        """What the assistant says."""
        text: str = self.body["choices"][0]["message"]["content"]
        return text

    @property
    def cached(self) -> int:
        """Tokens the worker found cached."""
        details = self.body["usage"]["prompt_tokens_details"] or {}
        return int(details.get("cached_tokens") or 0)


def _has_seen(worker: Worker, sequence: int) -> bool:
    last = worker.knowledge[0].feed.last_sequence
    return sequence < 0 or (last is not None and last >= sequence)


def free_port() -> int:
    """A port that nobody has just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def until(holds: Callable[[], Any], within_s: float = WAIT_S) -> None:
    """Wait for a condition, or fail."""
    async with asyncio.timeout(within_s):
        while True:
            result = holds()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return
            await asyncio.sleep(0.01)


async def until_followed(*workers: Worker, within_s: float = WAIT_S) -> None:
    """Wait until the events of these workers are heard, or known not to come."""
    if workers:
        await until(lambda: all(map(_is_followed, workers)), within_s)
        await asyncio.sleep(0.2)  # ZMQ tells the publisher a little after


def _is_followed(worker: Worker) -> bool:
    nobody = FeedState.ESTIMATED, FeedState.SILENT
    feeds = [known.feed for known in worker.knowledge.values()]
    return all(feed.reached or feed.state in nobody for feed in feeds)
