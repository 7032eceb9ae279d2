"""The behaviour of gateways as it was measured on three of them: our row of the table.

What others do there: bodies written anew, fields and headers dropped or added, up to
ten tries of one request, client errors that shut healthy workers out. Each test is a
line of it.
"""

import asyncio
import json
import time

import aiohttp
import pytest

from tests.proxy.conftest import Gateway, GatewayFor
from tests.proxy.raw import (
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    chunk,
    event,
    json_answer,
)
from tests.running import MODEL, StartGateway, StartWorker

FINE = json_answer(b'{"fine": true}')
BODY = (
    b'{ "model":"m", "prompt_token_ids":[1],"input_ids":[2], "cache_salt":"s","odd":{},'
    b'"messages":[{"role":"user","content":"hi","mine":[null]}],"temperature":null}'
)

STREAM = BODY[:-1] + b',"stream":true}'
PREFIXES, ROUNDS, WORKERS = 8, 4, 4


async def ask(
    gateway: Gateway, body: bytes = BODY, *headers: bytes, path: bytes | None = None
) -> tuple[bytes, bytes]:
    """Head and body of the answer to one request."""
    async with RawClient(gateway.port) as client:
        await client.post(body, *headers, path=path or b"/v1/chat/completions")
        return await client.answer()


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        b'{"model":"m","n":1.0}',
        b'{"model":"m","seed":18446744073709551615}',
        b'{"model":"m","max_tokens":"5"}',
        b'{"model":"m","stop":[1]}',
        b'{"model":"m","tool_choice":"whatever"}',
        b'{"model":"m","response_format":{"type":"new"}}',
        b'{"model":"m","messages":[{"role":"narrator","content":"x"}]}',
        b'{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":'
        b'{"name":"f","arguments":{"a":1}}}]}]}',
        b'{"model":"m","temperature":9}',
        b'{"model":"m","messages":[]}',
        b'{"model":"m","model":"m","x":1e400}',
        b'{"model":"unknown"}',
    ],
)
async def test_request_body(gateway_for: GatewayFor, body: bytes) -> None:
    """Byte-identical: unknown fields, nulls, odd values; refusing is the worker's.

    vllm-project/router#161, sgl-project/sglang#9621
    """
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        head, answer = await ask(gateway, body)
        assert (head[:12], answer) == (b"HTTP/1.1 200", b'{"fine": true}')
        assert worker.requests[0].partition(b"\r\n\r\n")[2] == body


async def test_request_headers(gateway_for: GatewayFor) -> None:
    """All end-to-end ones, custom ones too; none is added but the id."""
    sent = [
        b"X-Custom: 1",
        b"Cookie: a=b",
        b"X-Forwarded-For: 1.2.3.4",
        b"User-Agent: me",
        b"Authorization: Bearer k",
        b"traceparent: 00-1-2-01",
    ]
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        await ask(gateway, BODY, *sent)
        head = worker.requests[0].partition(b"\r\n\r\n")[0]
        lines = head.split(b"\r\n")[1:]
        ours = {line.split(b":")[0].lower() for line in lines if line not in sent}
        assert all(line in lines for line in sent)
        assert ours == {b"host", b"content-type", b"content-length", b"x-request-id"}


async def test_response_headers(gateway_for: GatewayFor) -> None:
    """Repeated ones stay repeated; none is added but the id."""
    answer = json_answer(b"{}", b"Set-Cookie: a=1", b"Set-Cookie: b=2")
    async with RawWorker(answering(answer)) as worker, gateway_for(worker) as gateway:
        head, _ = await ask(gateway)
        names = [
            line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line
        ]
        assert sorted(names) == [b"content-length", b"content-type", b"set-cookie",
                                 b"set-cookie", b"x-request-id"]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "tries"),
    [
        (b"400 X", 1), (b"401 X", 1), (b"404 X", 1), (b"422 X", 1), (b"500 X", 1),
        (b"502 X", 1), (b"429 X", 2), (b"503 X", 2),
    ],
)  # fmt: skip
async def test_attempts(gateway_for: GatewayFor, status: bytes, tries: int) -> None:
    """One; of a busy worker, one more on another. The first answer is passed on."""
    answer = json_answer(b'{"no": 1}', b"Retry-After: 7", status=status)
    async with (
        RawWorker(answering(answer)) as first,
        RawWorker(answering(answer)) as second,
        gateway_for(first, second) as gateway,
    ):
        head, body = await ask(gateway)
        assert head.startswith(b"HTTP/1.1 " + status[:3])
        assert b"Retry-After: 7\r\n" in head
        assert body == b'{"no": 1}'
        assert len(first.requests) + len(second.requests) == tries


async def test_reset_before_response_headers(gateway_for: GatewayFor) -> None:
    """One POST: the worker may be at it. 502 in OpenAI's shape."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        connection.reset()

    async with (
        RawWorker(script) as first,
        RawWorker(script) as second,
        gateway_for(first, second) as gateway,
    ):
        head, body = await ask(gateway)
        assert head.startswith(b"HTTP/1.1 502")
        assert json.loads(body)["error"]["code"] == "upstream_reset"
        assert len(first.requests) + len(second.requests) == 1


async def test_streaming_request_answered_500_json(gateway_for: GatewayFor) -> None:
    """It stays JSON."""
    answer = json_answer(b'{"error": 1}', status=b"500 X")
    async with RawWorker(answering(answer)) as worker, gateway_for(worker) as gateway:
        head, body = await ask(gateway, STREAM)
        assert head.startswith(b"HTTP/1.1 500")
        assert b"Content-Type: application/json\r\n" in head
        assert body == b'{"error": 1}'


async def test_worker_dies_mid_stream(gateway_for: GatewayFor) -> None:
    """An error event, no [DONE], then the end."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(SSE_HEAD + chunk(event(1)))
        connection.reset()

    async with RawWorker(script) as worker, gateway_for(worker) as gateway:
        _, body = await ask(gateway, STREAM)
        assert body.startswith(event(1) + b'data: {"error":{')
        assert b"[DONE]" not in body


async def test_chunk_timing(gateway_for: GatewayFor) -> None:
    """Events come when they were written."""
    parts = [SSE_HEAD, chunk(event(1)), chunk(event(2)), LAST_CHUNK]
    async with (
        RawWorker(answering(*parts, gap_s=0.3)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(STREAM)
        await client.head()
        times = []
        while await client.chunk():
            times.append(time.monotonic())
        assert times[1] - times[0] > 0.2


LEAVING = {
    "not streamed": (BODY, b""),
    "prefill of a stream": (STREAM, b""),
    "prefill of a stream that has a head": (STREAM, SSE_HEAD),
    "stream": (STREAM, SSE_HEAD + chunk(event(1))),
}


@pytest.mark.parametrize("when", LEAVING)
async def test_client_leaves(gateway_for: GatewayFor, when: str) -> None:
    """The worker sees it within a second; in the prefill of a stream, too."""
    body, begun = LEAVING[when]
    left: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(begun)
        left.set_result(await connection.closed_by_peer())

    async with RawWorker(script) as worker, gateway_for(worker) as gateway:
        async with RawClient(gateway.port) as client:
            await client.post(body)
            await asyncio.sleep(0.2)
        assert await asyncio.wait_for(left, 2) < 1.2


@pytest.mark.parametrize(("status", "count"), [(b"400 X", 30), (b"500 X", 6)])
async def test_errors_then_a_good_request(
    gateway_for: GatewayFor, status: bytes, count: int
) -> None:
    """30 refusals, or 6 faults, shut nobody out: the good request is a 200."""
    bad = json_answer(b"{}", status=status)

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            await connection.send(FINE if b"good" in request else bad)

    async with (
        RawWorker(script) as first,
        RawWorker(script) as second,
        gateway_for(first, second) as gateway,
    ):
        for _ in range(count):
            assert (await ask(gateway))[0].startswith(b"HTTP/1.1 " + status[:3])
        assert (await ask(gateway, b'{"good": 1}'))[0].startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("render", ["auto", "never"])
async def test_affinity_on_chat(
    start_worker: StartWorker, start_gateway: StartGateway, render: str
) -> None:
    """Each of 8 prefixes stays with its worker, of 4 that all have some.

    Also where nothing is rendered.
    """
    workers = [await start_worker() for _ in range(WORKERS)]
    gateway = await start_gateway(*workers, render=render, prefill_rate=20_000.0)

    async def begun(prefix: int, turn: int) -> aiohttp.ClientResponse:
        text = f"{prefix} prefixes of four kilobytes " * 128
        messages = [{"role": "system", "content": text},
                    {"role": "user", "content": f"question {turn}"}]  # fmt: skip
        body = {"model": MODEL, "messages": messages, "stream": True, "max_tokens": 50}
        url = gateway.url + "/v1/chat/completions"
        answer = await gateway.client.post(url, json=body)
        await answer.content.readany()  # its prefill is over
        return answer

    found: list[set[str]] = [set() for _ in range(PREFIXES)]
    for turn in range(ROUNDS):  # each in another order: no luck
        order = [(turn + place) % PREFIXES for place in range(PREFIXES)]
        streams = [await begun(prefix, turn) for prefix in order]
        for prefix, stream in zip(order, streams, strict=True):
            found[prefix].add(stream.headers["X-Sim-Worker"])
            await stream.read()
    assert [len(urls) for urls in found] == [1] * PREFIXES
    assert set.union(*found) == {worker.url for worker in workers}


async def test_unknown_model_name(gateway_for: GatewayFor) -> None:
    """Any worker may answer it, and its answer is the client's."""
    answer = json_answer(b'{"error": "model"}', status=b"404 X")
    async with RawWorker(answering(answer)) as worker, gateway_for(worker) as gateway:
        head, body = await ask(gateway, b'{"model":"unknown"}')
        assert head.startswith(b"HTTP/1.1 404")
        assert body == b'{"error": "model"}'


@pytest.mark.parametrize("path", [b"/foo", b"/v2/foo", b"/kv_cache_events"])
async def test_unknown_path(gateway_for: GatewayFor, path: bytes) -> None:
    """404 as JSON, and no worker hears of it."""
    async with RawWorker(answering(FINE)) as worker, gateway_for(worker) as gateway:
        head, body = await ask(gateway, path=path)
        assert head.startswith(b"HTTP/1.1 404")
        assert json.loads(body)["error"]["code"] == "not_found"
        assert worker.requests == []


@pytest.mark.parametrize("path", [b"/v1/foo", b"/tokenize", b"/v1/rerank"])
async def test_other_inference_path(gateway_for: GatewayFor, path: bytes) -> None:
    """Passed on, and the answer back, whatever its shape."""
    answer = json_answer(b'["not conforming"]')
    async with RawWorker(answering(answer)) as worker, gateway_for(worker) as gateway:
        head, body = await ask(gateway, path=path)
        assert head.startswith(b"HTTP/1.1 200")
        assert body == b'["not conforming"]'
