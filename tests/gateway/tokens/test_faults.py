"""Workers that take ids and do not answer as they should."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from gateway.tokens.chat import ChatWriter
from tests.gateway.scripted import idle, worker
from tests.gateway.tokens.breaking import (
    BODY,
    HEAD,
    before,
    breaking,
    choice,
    chunk,
    event,
)
from tests.gateway.tokens.rig import CHAT, ask
from tests.proxy.raw import json_answer
from tests.running import StartGateway


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
