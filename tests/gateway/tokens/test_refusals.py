"""Refusals of workers that take ids, and what else is passed on as it is."""

import json

import aiohttp

from tests.gateway.scripted import idle, worker
from tests.gateway.tokens.breaking import BODY, HEAD, before, choice, chunk, event
from tests.gateway.tokens.rig import COMPLETIONS, ask
from tests.proxy.raw import json_answer
from tests.running import StartGateway


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
