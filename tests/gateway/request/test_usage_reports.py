"""Field reports about usage and metrics: what went wrong in others, asserted."""

import asyncio
import json
import random
import re
from collections.abc import Sequence
from functools import partial

import pytest

from tests.gateway.fed import TURN, options
from tests.gateway.scripted import ANSWER, CHAT, LISTING, ask, posts, refusal, worker
from tests.proxy.raw import (
    LAST_CHUNK,
    SSE_HEAD,
    RawWorker,
    WorkerConnection,
    chunk,
    json_answer,
)
from tests.running import MODEL, Running, StartGateway, StartWorker, until

FINISH = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}\n\n'
)
USAGE = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[],"usage":{"prompt_tokens":100,"total_tokens":103,'
    b'"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
WHOLE = FINISH + USAGE + DONE


def streaming(*writes: bytes) -> RawWorker:
    """A worker that answers a chat with these writes, each on its way alone."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                found = request.startswith(b"GET /v1/models")
                missing = json_answer(b"{}", status=b"404 Not Found")
                await connection.send(LISTING if found else missing)
                continue
            await connection.send(SSE_HEAD)
            for data in writes:
                await connection.send(chunk(data))
                await asyncio.sleep(0.01)
            await connection.send(LAST_CHUNK)

    return RawWorker(script)


async def streamed(gateway: Running) -> bytes:
    """The body of a streamed chat that asks for its usage."""
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=body) as response:
        assert response.status == 200
        return await response.read()


WRITES: Sequence[tuple[bytes, ...]] = (
    (FINISH, USAGE, DONE),
    (FINISH + USAGE[:70], USAGE[70:], DONE),
    (FINISH, USAGE[:-60], USAGE[-60:] + DONE),
    (WHOLE,),
)


@pytest.mark.parametrize("writes", WRITES, ids=["apart", "cut", "twice", "one"])
async def test_streamed_usage_is_counted_wherever_the_reads_end(
    writes: tuple[bytes, ...], start_gateway: StartGateway
) -> None:
    """The usage event and [DONE] in separate reads, and the event cut in two.

    kubernetes-sigs/gateway-api-inference-extension#1626
    """
    async with streaming(*writes) as sent:
        gateway = await start_gateway(sent.url)
        await streamed(gateway)
        assert await gateway.metric("prompt_tokens_total") == 100
        assert await gateway.metric("delivered_hit_tokens_total") == 64
        assert await gateway.metric("uncompared_requests_total") == 0


@pytest.mark.parametrize("writes", WRITES, ids=["apart", "cut", "twice", "one"])
async def test_events_beside_the_usage_keep_their_prefix(
    writes: tuple[bytes, ...], start_gateway: StartGateway
) -> None:
    """With include_usage, and the last three events in one read.

    gpustack/gpustack#6155
    """
    async with streaming(*writes) as sent:
        gateway = await start_gateway(sent.url)
        body = await streamed(gateway)
    assert body == WHOLE
    assert [line[:6] for line in body.split(b"\n") if line] == [b"data: "] * 3


async def test_the_usage_event_keeps_its_empty_choices(
    start_gateway: StartGateway,
) -> None:
    """`choices: []` byte for byte, whatever is counted on the way.

    BerriAI/litellm#8450
    """
    async with streaming(FINISH, USAGE, DONE) as sent:
        gateway = await start_gateway(sent.url)
        events = (await streamed(gateway)).split(b"\n\n")
    assert events[1] + b"\n\n" == USAGE
    assert json.loads(events[1].removeprefix(b"data: "))["choices"] == []


async def test_a_worker_that_says_it_is_busy_is_busy(
    start_gateway: StartGateway,
) -> None:
    """The gateway's own count says idle, the worker says 503: the worker is believed.

    ai-dynamo/dynamo#7753

    There, two publishers wrote one number. Here what this gateway has in flight and
    what the worker says are two, and what a worker refuses is a state of its own.
    """
    full = refusal(b"503 Service Unavailable", b"Retry-After: 20")
    async with worker(full) as busy, worker(ANSWER) as free:
        gateway = await start_gateway(busy.url, free.url)
        for _ in range(12):
            status, _, _ = await ask(gateway)
            assert status == 200
        assert posts(busy) <= 1
        assert await gateway.metric("inflight_requests", worker=busy.url) == 0
        page = await gateway.get("/gateway/workers")
        assert {shown["load_source"] for shown in page["workers"]} == {"own requests"}
        explained = await gateway.post("/gateway/explain", CHAT)
        assert explained["chosen"]["url"] == free.url
        (other,) = explained["not_weighed"]
        assert other["url"] == busy.url
        assert re.fullmatch(r"busy for (1\d|20)\.\d s more", other["reason"])


async def test_gauges_fall_to_zero_when_nothing_is_in_flight(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Read at the scrape, not written by requests: no gauge freezes.

    vllm-project/production-stack#173
    """
    slow = await start_worker(options(speed=2.0))
    gateway = await start_gateway(slow)
    long = {"max_tokens": 4_000, "min_tokens": 4_000}
    chat = asyncio.create_task(gateway.chat(TURN, stream=False, **long))
    await until(lambda: gateway.metric("inflight_requests"))
    chat.cancel()
    for name in ("inflight_requests", "inflight_uncached_tokens"):
        await until(partial(_is_zero, gateway, name))


async def _is_zero(gateway: Running, name: str) -> bool:
    return await gateway.metric(name) == 0


async def test_model_names_by_the_thousand_add_no_series(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Names in bodies become no labels, and nothing is kept of them.

    llm-d/llm-d-router#1625
    """
    worker = await start_worker(options())
    gateway = await start_gateway(worker, forward_when="never")  # proof comes any time
    rng = random.Random(11)

    async def asked(count: int) -> None:
        names = [f"{rng.random()}/{number}" for number in range(count)]
        messages = [{"role": "user", "content": "hi"}]
        for name in names:
            body = {"model": name, "messages": messages, "max_tokens": 1}
            url = gateway.url + "/v1/chat/completions"
            async with gateway.client.post(url, json=body) as response:
                assert response.status == 404

    await gateway.chat(TURN)
    await asked(3)
    await gateway.metrics()
    before = set(await gateway.metrics())
    await asyncio.gather(*(asked(150) for _ in range(8)))
    more = set(await gateway.metrics()) - before
    assert {series for series in more if "health_checks" not in series} == set()
    (shown,) = (await gateway.get("/gateway/workers"))["workers"]
    assert shown["models"] == [MODEL]
