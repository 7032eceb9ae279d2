"""The `openai` package before a gateway: when it tries again, and what it raises."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from gateway.errors import UpstreamTimeout
from gateway.upstreams.exchange import Timeouts
from tests.proxy.conftest import Gateway, GatewayFor
from tests.proxy.raw import (
    LAST_CHUNK,
    SSE_HEAD,
    RawWorker,
    Script,
    WorkerConnection,
    chunk,
    event,
    json_answer,
)

TIMEOUT = UpstreamTimeout.code
ANSWER = json_answer(
    b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
)


def refusal(status: bytes, *headers: bytes) -> bytes:
    """A worker's refusal."""
    return json_answer(b'{"error": {"message": "no"}}', *headers, status=status)


def in_turn(*answers: bytes) -> Script:
    """One answer after the other, the last one again and again."""
    left = list(answers)

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await connection.send(left.pop(0) if len(left) > 1 else left[0])

    return script


@asynccontextmanager
async def client_of(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """The client as it comes: two retries."""
    url = f"http://127.0.0.1:{gateway.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        yield client


async def ask(client: openai.AsyncOpenAI) -> str | None:
    """The text of an answer."""
    answer = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )
    return answer.choices[0].message.content


@pytest.mark.parametrize("status", [b"429 Busy", b"503 Busy"])
async def test_a_busy_worker_is_tried_again_when_it_asked_to_be(
    gateway_for: GatewayFor, status: bytes
) -> None:
    """Its Retry-After comes through, and so does the second answer."""
    busy = refusal(status, b"Retry-After: 0.6")
    async with (
        RawWorker(in_turn(busy, ANSWER)) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        begun = time.monotonic()
        assert await ask(client) == "hi"
        assert 0.5 < time.monotonic() - begun < 5
        heads = [request.lower() for request in worker.requests]
        counts = [f"x-stainless-retry-count: {n}\r\n".encode() for n in (0, 1)]
        assert [count in head for count, head in zip(counts, heads, strict=True)] == [
            True,
            True,
        ]


async def test_a_worker_may_forbid_it(gateway_for: GatewayFor) -> None:
    """`x-should-retry` is the worker's to say, and is passed on."""
    busy = refusal(b"503 Busy", b"x-should-retry: false")
    async with (
        RawWorker(in_turn(busy)) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        with pytest.raises(openai.InternalServerError):
            await ask(client)
        assert len(worker.requests) == 1


async def test_a_worker_that_was_silent_is_not_asked_again(
    gateway_for: GatewayFor,
) -> None:
    """Our own 504 says so: three workers would be busy for as long, for nothing."""

    async def silent(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.closed_by_peer()

    async with (
        RawWorker(silent) as worker,
        gateway_for(worker, timeouts=Timeouts(first_byte_s=0.3)) as gateway,
        client_of(gateway) as client,
    ):
        with pytest.raises(openai.InternalServerError) as refused:
            await ask(client)
        assert (refused.value.status_code, refused.value.code) == (504, TIMEOUT)
        assert len(worker.requests) == 1


async def test_a_worker_that_breaks_is_the_clients_to_judge(
    gateway_for: GatewayFor,
) -> None:
    """Our own 502 forbids nothing: the client's second try is answered."""

    async def breaks(connection: WorkerConnection) -> None:
        await connection.request()
        connection.reset()

    async with (
        RawWorker(breaks) as bad,
        RawWorker(in_turn(ANSWER)) as good,
        gateway_for(bad, good) as gateway,
        client_of(gateway) as client,
    ):
        for _ in range(4):
            assert await ask(client) == "hi"
        assert len(bad.requests) == 1


async def test_milliseconds_win(gateway_for: GatewayFor) -> None:
    """`retry-after-ms` reaches the client beside `retry-after`."""
    busy = refusal(b"429 Busy", b"retry-after-ms: 50", b"retry-after: 30")
    async with (
        RawWorker(in_turn(busy, ANSWER)) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        begun = time.monotonic()
        assert await ask(client) == "hi"
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (b"400 X", openai.BadRequestError),
        (b"401 X", openai.AuthenticationError),
        (b"403 X", openai.PermissionDeniedError),
        (b"404 X", openai.NotFoundError),
        (b"413 X", openai.APIStatusError),
        (b"422 X", openai.UnprocessableEntityError),
    ],
)
async def test_refusals_are_final(
    gateway_for: GatewayFor, status: bytes, raised: type[openai.APIStatusError]
) -> None:
    """One request each, and the exception that is meant for it, with its id."""
    async with (
        RawWorker(in_turn(refusal(status))) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        with pytest.raises(raised) as refused:
            await ask(client)
        assert len(worker.requests) == 1
        sent = worker.requests[0].lower().split(b"x-request-id: ")[1].split(b"\r\n")[0]
        assert refused.value.request_id == sent.decode()


async def test_a_full_gateway_is_tried_again(gateway_for: GatewayFor) -> None:
    """Our own 503 has a Retry-After, and the shape that the client reads."""
    async with (
        RawWorker(in_turn(ANSWER)) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        room = gateway.real.room
        room.most, room.held = 0, 1
        with pytest.raises(openai.InternalServerError) as refused:
            await ask(client.with_options(max_retries=0))
        assert refused.value.code == "overloaded"
        assert refused.value.response.headers["Retry-After"] == "1"
        assert worker.requests == []
        room.most, room.held = 1 << 20, 0
        assert await ask(client) == "hi"


async def test_a_stream_that_breaks_is_an_error(gateway_for: GatewayFor) -> None:
    """Not an answer that is shorter than it should be, and not tried again."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        connection.reset()

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        pieces = aiter(stream)
        assert (await anext(pieces)).choices[0].delta.content == "t1"
        with pytest.raises(openai.APIError) as broken:
            await anext(pieces)
        assert broken.value.code == "upstream_reset"
        assert len(worker.requests) == 1


async def test_a_whole_stream(gateway_for: GatewayFor) -> None:
    """With its [DONE]."""
    parts = [chunk(event(n)) for n in range(3)] + [chunk(b"data: [DONE]\n\n")]
    async with (
        RawWorker(in_turn(SSE_HEAD + b"".join(parts) + LAST_CHUNK)) as worker,
        gateway_for(worker) as gateway,
        client_of(gateway) as client,
    ):
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        pieces = [piece.choices[0].delta.content async for piece in stream]
        assert pieces == ["t0", "t1", "t2"]
