"""Workers that take ids and do not answer as they should."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from gateway.settings.values import declared_api
from gateway.tokens.chat import ChatWriter
from tests.gateway.scripted import LISTING, idle, worker
from tests.gateway.tokens.rig import CHAT, COMPLETIONS, ask
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import Running, StartGateway

TOKENS = (declared_api("tokens"),)
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def choice(ids: list[int], finish: str | None = None) -> dict[str, Any]:
    """Some ids of an answer."""
    return {"index": 0, "token_ids": ids, "finish_reason": finish}


def event(value: Any) -> bytes:
    """A chunk of a stream with one event in it."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    said = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(said), said)


def chunk(ids: list[int], finish: str | None = None) -> bytes:
    """An event with some ids."""
    return event({"request_id": "r", "choices": [choice(ids, finish)]})


def breaking(*pieces: bytes, head: bytes = HEAD) -> RawWorker:
    """A worker that sends these and closes the connection."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if request.startswith(b"POST"):
                await connection.send(head + b"".join(pieces))
                return
            found = request.startswith(b"GET /v1/models")
            missing = json_answer(b"{}", status=b"404 Not Found")
            await connection.send(LISTING if found else missing)

    return RawWorker(script)


async def before(start_gateway: StartGateway, *workers: RawWorker) -> Running:
    """A gateway before workers that are said to take ids."""
    return await start_gateway(*(w.url for w in workers), worker_api=TOKENS)


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"[]",
        b"{}",
        b'{"choices": 3}',
        b'{"choices": [{"index": "x"}]}',
        b'{"choices": [{"index": 0, "token_ids": ["a"]}]}',
        b'{"choices": [{"index": 0, "token_ids": [1], "logprobs": {"content": [3]}}]}',
        b'{"choices": [{"index": 0, "token_ids": [1]}], "usage": []}',
        b'{"choices": []}',
        b'{"choices": [{"index": 0, "token_ids": [1], "finish_reason": null}]}',
        b'{"choices": [{"index": 1, "token_ids": [1], "finish_reason": "stop"}]}',
        b'{"choices": [{"index": 0, "token_ids": [1], "finish_reason": "stop"},'
        b' {"index": 1, "token_ids": [1], "finish_reason": "stop"}]}',
    ],
)
async def test_an_answer_that_is_none_is_a_502(
    start_gateway: StartGateway, client: aiohttp.ClientSession, body: bytes
) -> None:
    """Whole or streamed, and nothing stays booked."""
    stream = HEAD + event(body) + event(b"[DONE]") + b"0\r\n\r\n"
    async with worker(json_answer(body), stream) as raw:
        gateway = await before(start_gateway, raw)
        told = await ask(client, gateway.url, BODY)
        assert told.status == 502, told.text
        assert told.body["error"]["type"] == "upstream_error"
        async with client.post(
            gateway.url + CHAT, json=BODY | {"stream": True}
        ) as response:
            assert "upstream_error" in await response.text()
        await idle(gateway)


async def test_a_fault_of_ours_is_counted(
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream ends with an error, and the operator sees whose it is."""

    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(ChatWriter, "feed", broken)
    stream = HEAD + chunk([9707], "length") + event(b"[DONE]") + b"0\r\n\r\n"
    async with worker(stream) as raw:
        gateway = await before(start_gateway, raw)
        url = gateway.url + CHAT
        async with client.post(url, json=BODY | {"stream": True}) as response:
            assert "the answer could not be made" in await response.text()
        counted = 'kv_gateway_internal_errors_total{where="tokens"}'
        assert (await gateway.metrics())[counted] == 1


@pytest.mark.parametrize("ids", [[], [4_294_967_295], [151_644] * 3, [0, 1, 2]])
async def test_any_ids_are_text(
    start_gateway: StartGateway, client: aiohttp.ClientSession, ids: list[int]
) -> None:
    """None at all, too, and those that the vocabulary does not know."""
    body = json.dumps({"choices": [choice(ids, "length")]}).encode()
    async with worker(json_answer(body)) as raw:
        gateway = await before(start_gateway, raw)
        told = await ask(client, gateway.url, BODY)
        assert told.status == 200, told.text
        assert told.body["usage"]["completion_tokens"] == len(ids)


@pytest.mark.parametrize(
    "end",
    [
        b"",
        b"0\r\n\r\n",
        b"5\r\ndata:",
        b"10\r\ndata: {",
    ],
)
async def test_a_stream_that_breaks_off_ends_with_an_error(
    start_gateway: StartGateway, client: aiohttp.ClientSession, end: bytes
) -> None:
    """What came before is there; the last event is no [DONE]."""
    async with breaking(chunk([9707]), end) as raw:
        gateway = await before(start_gateway, raw)
        async with client.post(
            gateway.url + CHAT, json=BODY | {"stream": True}
        ) as response:
            text = await response.text()
        assert '"content":"Hello"' in text
        last = json.loads(text.strip().rpartition("data: ")[2])
        assert last["error"]["type"] == "upstream_error"
        await idle(gateway)


@pytest.mark.parametrize(
    "answer",
    [
        json_answer(json.dumps({"choices": [choice([9707], "length")]}).encode()),
        HEAD.replace(b"text/event-stream", b"text/html") + b"0\r\n\r\n",
        HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        json_answer(b"{}", status=b"201 Created"),
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
async def test_a_stream_that_is_none_is_a_502(
    start_gateway: StartGateway, client: aiohttp.ClientSession, answer: bytes
) -> None:
    """It is known by its head: no stream is begun."""
    async with breaking(head=answer) as raw:
        gateway = await before(start_gateway, raw)
        told = await ask(client, gateway.url, BODY | {"stream": True})
        assert told.status == 502
        assert told.body["error"]["code"] == "upstream_malformed"
        await idle(gateway)


@pytest.mark.parametrize("end", [b"0\r\n\r\n", event(b"[DONE]") + b"0\r\n\r\n"])
async def test_a_part_of_an_answer_is_not_the_whole(
    start_gateway: StartGateway, client: aiohttp.ClientSession, end: bytes
) -> None:
    """Where a stream is collected, as the engine knows no stop strings."""
    error = b'{"error": {"message": "stop strings are not supported"}}'
    no_stops = json_answer(error, status=b"400 Bad Request")
    async with worker(no_stops, HEAD + chunk([9707]) + end) as raw:
        gateway = await before(start_gateway, raw)
        told = await ask(client, gateway.url, BODY | {"stop": ["zz"]})
        assert told.status == 502, told.text
        assert told.body["error"]["code"] == "upstream_malformed"
        await idle(gateway)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stream_that_is_complete_needs_no_end(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stream: bool
) -> None:
    """A worker that has said all and holds the connection holds nobody up."""
    error = b'{"error": {"message": "stop strings are not supported"}}'
    no_stops = json_answer(error, status=b"400 Bad Request")
    said = HEAD + chunk([9707], "length") + event(b"[DONE]")
    async with worker(no_stops, said) as raw, asyncio.timeout(4):
        gateway = await before(start_gateway, raw)
        body = BODY | {"stop": ["zz"], "stream": stream}
        told = await ask(client, gateway.url, body)
        assert told.status == 200, told.text
        assert "Hello" in told.text


@pytest.mark.parametrize("stops", [None, ["zz"]])
async def test_many_ids_in_one_event(
    start_gateway: StartGateway, client: aiohttp.ClientSession, stops: Any
) -> None:
    """Megabytes of it, as with alternatives for each id; streamed or collected."""
    count = 20_000
    entry = {"token_id": 9707, "logprob": -1.0, "top_logprobs": []}
    logprobs = {"content": [entry] * count}
    said = choice([9707] * count, "length") | {"logprobs": logprobs}
    stream = HEAD + event({"choices": [said]}) + event(b"[DONE]") + b"0\r\n\r\n"
    error = b'{"error": {"message": "stop strings are not supported"}}'
    no_stops = [json_answer(error, status=b"400 Bad Request")] if stops else []
    async with worker(*no_stops, stream) as raw:
        gateway = await before(start_gateway, raw)
        body = BODY | {"stop": stops, "stream": stops is None}
        told = await ask(client, gateway.url, body)
        assert told.status == 200, told.text
        assert told.text.count("Hello" * count) == 1


async def test_a_prompt_that_is_refused_refuses_all(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """In the worker's words; no connection stays open for the other prompts."""
    fine = json_answer(json.dumps({"choices": [choice([9707], "length")]}).encode())
    refusal = json_answer(b'{"error": {"message": "no"}}', status=b"403 Forbidden")
    async with worker(fine, refusal) as raw:
        gateway = await before(start_gateway, raw)
        body = {"model": "m", "prompt": [*"abcdefgh"], "max_tokens": 5}
        told = await ask(client, gateway.url, body, COMPLETIONS)
        assert (told.status, told.body) == (403, {"error": {"message": "no"}})
        await idle(gateway)


async def test_an_engines_error_is_passed_on(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """In its words, in its place; nothing is added after it."""
    error = {"error": {"message": "out of memory", "code": 500}}
    pieces = (HEAD, chunk([9707]), event(error), event(b"[DONE]"), b"0\r\n\r\n")
    async with worker(b"".join(pieces)) as raw:
        gateway = await before(start_gateway, raw)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        told = await ask(client, gateway.url, BODY | options)
        assert told.events[-1] == error
        await idle(gateway)


@pytest.mark.parametrize("cached", [-5, 10**30, 10, True, "9", 1.5])
async def test_hits_that_cannot_be_are_not_told(
    start_gateway: StartGateway, client: aiohttp.ClientSession, cached: Any
) -> None:
    """More than the prompt has, or less than none: the rest of the usage counts."""
    usage = {"prompt_tokens_details": {"cached_tokens": cached}}
    said = {"choices": [choice([9707], "length")], "usage": usage}
    stream = HEAD + event(said) + event(b"[DONE]") + b"0\r\n\r\n"
    async with worker(json_answer(json.dumps(said).encode()), stream) as raw:
        gateway = await before(start_gateway, raw)
        counted = {"prompt_tokens": 9, "total_tokens": 10, "completion_tokens": 1}
        told = (await ask(client, gateway.url, BODY)).body["usage"]
        assert told.pop("prompt_tokens_details") is None
        assert told == counted | {"completion_tokens_details": None}
        options = {"stream": True, "stream_options": {"include_usage": True}}
        streamed = await ask(client, gateway.url, BODY | options)
        assert streamed.events[-1]["usage"] == counted


async def test_a_refusal_is_passed_on(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """Status and body are the worker's."""
    said = b'{"error": {"message": "disabled"}}'
    async with worker(json_answer(said, status=b"403 Forbidden")) as raw:
        gateway = await before(start_gateway, raw)
        told = await ask(client, gateway.url, BODY)
        assert (told.status, told.text) == (403, said.decode())


async def test_a_session_in_the_body_is_named_by_header(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """As the generate route has no field for it; headers that are there stay."""
    fine = json.dumps({"choices": [choice([9707], "length")]}).encode()
    async with worker(json_answer(fine)) as raw:
        gateway = await before(start_gateway, raw)
        for headers, session in (({}, "s1"), ({"X-Session-ID": "h"}, "h")):
            body = BODY | {"session_id": "s1"}
            assert (await ask(client, gateway.url, body, **headers)).status == 200
            sent = raw.requests[-1].partition(b"\r\n\r\n")[0].lower()
            assert sent.count(b"x-session-id: ") == 1
            assert f"x-session-id: {session}\r\n".encode() in sent + b"\r\n"
        body = BODY | {"session_id": "a\nb"}
        assert (await ask(client, gateway.url, body)).status == 200


async def test_a_busy_worker_gives_way(
    start_gateway: StartGateway, client: aiohttp.ClientSession
) -> None:
    """To another of its kind; the client sees nothing of it."""
    fine = json.dumps({"choices": [choice([9707], "length")]}).encode()
    refusal = json_answer(b"{}", b"Retry-After: 1", status=b"503 Busy")
    async with worker(refusal) as busy, worker(json_answer(fine)) as free:
        gateway = await before(start_gateway, busy, free)
        for _ in range(3):
            told = await ask(client, gateway.url, BODY)
            assert told.body["choices"][0]["message"]["content"] == "Hello"
        assert await gateway.metric("retries_total", reason="busy") <= 1
