"""Failures of other gateways in the field, as tests of ours.

Only those that no other file has: most kinds have a file of their own beside this one.
"""

import asyncio
import json

import pytest

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
from tests.running import until

FINE = json_answer(b'{"fine": true}')
CHUNKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)
MIB = 1 << 20


async def test_client_errors_open_no_breaker(
    gateway_for: GatewayFor,
) -> None:
    """20 prompts that are too long, then a good one: it is answered.

    sgl-project/sglang#25811
    """
    too_long = json_answer(b'{"error": "context"}', status=b"400 Bad Request")
    answers = [too_long] * 20 + [FINE]

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await connection.send(answers.pop(0))

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(20):
            await client.post(b"{}")
            assert (await client.answer())[0].startswith(b"HTTP/1.1 400")
        await client.post(b"{}")
        assert (await client.answer())[0].startswith(b"HTTP/1.1 200")


async def test_shed_requests_are_told_when_to_come_again(
    gateway_for: GatewayFor,
) -> None:
    """The queue is full: 503 with Retry-After and a code, at once.

    smg-project/smg#2247
    """
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await go_on.wait()
        await connection.send(FINE)

    limits = {"max_inflight_tokens": 1, "max_queue": 1, "queue_timeout": 60.0}
    async with (
        RawWorker(script) as worker,
        gateway_for(worker, **limits) as gateway,
        RawClient(gateway.port) as served,
        RawClient(gateway.port) as waits,
        RawClient(gateway.port) as shed,
    ):
        await served.post(CHAT)
        await until(lambda: len(worker.requests) == 1)
        await waits.post(CHAT)
        await until(lambda: gateway.real.admission.waiting == 1)
        await shed.post(CHAT)
        _assert_shed(*await shed.answer())
        assert len(worker.requests) == 1
        go_on.set()
        for client in (served, waits):
            assert (await client.answer())[0].startswith(b"HTTP/1.1 200")


async def test_bodies_for_which_there_is_no_room(gateway_for: GatewayFor) -> None:
    """Told the same, and not read to the end: that would cost what is to be spared.

    smg-project/smg#2247
    """
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await go_on.wait()
        await connection.send(FINE)

    large = b'{"messages": "' + b"x" * (8 * MIB) + b'"}'
    async with (
        RawWorker(script) as worker,
        gateway_for(worker, max_bodies=10 * MIB) as gateway,
        RawClient(gateway.port) as served,
        RawClient(gateway.port) as shed,
    ):
        await served.post(large)
        await until(lambda: len(worker.requests) == 1)
        sending = asyncio.ensure_future(shed.post(large))
        _assert_shed(*await shed.answer())
        sending.cancel()
        assert len(worker.requests) == 1
        go_on.set()
        assert (await served.answer())[0].startswith(b"HTTP/1.1 200")
        await until(lambda: gateway.real.room.held == 0)


def _assert_shed(head: bytes, body: bytes) -> None:
    assert head.startswith(b"HTTP/1.1 503")
    assert b"\r\nRetry-After: 1\r\n" in head
    assert json.loads(body)["error"]["code"] == "overloaded"


async def test_a_broken_worker_is_not_picked_by_every_request(
    gateway_for: GatewayFor,
) -> None:
    """It has their prefix, accepts and resets: of 100 requests it gets a few at most.

    AMD-AGI/Infera#82
    """
    warm: list[str] = []
    resets: list[bytes] = []

    def breaking_once_warm(name: str) -> Script:
        async def script(connection: WorkerConnection) -> None:
            while request := await connection.request():
                if warm == [name]:
                    resets.append(request)
                    connection.reset()
                    return
                warm[:] = warm or [name]
                await connection.send(FINE)

        return script

    body = json.dumps({"messages": [{"role": "user", "content": "prefix " * 600}]})
    async with (
        RawWorker(breaking_once_warm("one")) as one,
        RawWorker(breaking_once_warm("other")) as other,
        gateway_for(one, other, policy="kv_cache_aware") as gateway,
        RawClient(gateway.port) as client,
    ):
        statuses = []
        for _ in range(101):
            await client.post(body.encode())
            statuses.append((await client.answer())[0][9:12])
        assert statuses[0] == b"200"
        assert 1 <= len(resets) <= 3  # the first may be taken for a stale connection
        assert statuses.count(b"502") <= 2
        assert set(statuses) <= {b"200", b"502"}


async def test_a_worker_that_is_terminating(
    gateway_for: GatewayFor,
) -> None:
    """503 and a closed connection, while its health is fine: no request is lost.

    vllm-project/production-stack#601
    """
    leaving = json_answer(b"{}", b"Connection: close", status=b"503 Bye")

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(leaving)

    async with (
        RawWorker(script) as old,
        RawWorker(answering(FINE)) as new,
        gateway_for(old, new) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(20):
            await client.post(b"{}")
            assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
        assert len(old.requests) <= 2
        assert len(new.requests) == 20


@pytest.mark.parametrize("size", [600 * 1024, 5 * MIB, 40 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
async def test_large_bodies(
    gateway_for: GatewayFor, size: int, *, chunked: bool
) -> None:
    """Whole at the worker, with a length or without.

    kubernetes-sigs/gateway-api-inference-extension#854, envoyproxy/ai-gateway#827
    """
    body = b'{"messages": "' + b"x" * size + b'"}'
    seen: list[bytes] = []

    async def script(connection: WorkerConnection) -> None:
        seen.append((await connection.request()).partition(b"\r\n\r\n")[2])
        await connection.send(FINE)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        if chunked:
            await client.send(CHUNKED)
            for start in range(0, len(body), MIB):
                await client.send(chunk(body[start : start + MIB]))
            await client.send(LAST_CHUNK)
        else:
            await client.post(body)
        assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
        assert seen == [body]


async def test_a_long_stream_ends_cleanly(
    gateway_for: GatewayFor,
) -> None:
    """200 events with gaps, then the last chunk: nothing is incomplete.

    vllm-project/production-stack#952
    """
    parts = [chunk(event(number)) for number in range(200)]
    async with (
        RawWorker(answering(SSE_HEAD, *parts, LAST_CHUNK, gap_s=0.005)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port, limit=MIB) as client,
    ):
        await client.post(b"{}")
        _, body = await client.answer()
        assert body == b"".join(event(number) for number in range(200))


async def test_requests_at_the_pace_of_the_keep_alive(
    gateway_for: GatewayFor,
) -> None:
    """A worker that closes idle connections just when the next request comes.

    aio-libs/aiohttp#9138
    """
    idle_s = 0.1

    async def script(connection: WorkerConnection) -> None:
        while True:
            try:
                request = await asyncio.wait_for(connection.request(), idle_s)
            except TimeoutError:
                return
            if not request:
                return
            await connection.send(FINE)

    async with (
        RawWorker(script) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        for _ in range(40):
            await client.post(b"{}")
            assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
            await asyncio.sleep(idle_s)
