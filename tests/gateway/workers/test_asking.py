"""A question to a worker: what it carries, and how much of an answer is waited for."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from gateway.workers.asking import Asker, TooLong, Unanswered
from tests.gateway.answering import Scripted

SHORT = aiohttp.ClientTimeout(total=0.3)


async def test_key_and_body(client: aiohttp.ClientSession, scripted: Scripted) -> None:
    """The key and the body go along; status and body come back."""
    seen = []

    async def answer(request: web.Request) -> web.Response:
        key, kind = (request.headers.get(n) for n in ("Authorization", "Content-Type"))
        seen.append((request.method, key, kind, await request.read()))
        return web.Response(status=418, body=b"tea")

    asker = Asker(client, await scripted(answer), "secret")
    for page in (await asker.get("/x", 3), await asker.post("/x", b"{}", 3)):
        assert (page.status, page.body) == (418, b"tea")
    assert seen == [
        ("GET", "Bearer secret", None, b""),
        ("POST", "Bearer secret", "application/json", b"{}"),
    ]


async def test_long_answers(client: aiohttp.ClientSession, scripted: Scripted) -> None:
    """No more is kept than was asked for."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1_000_000)

    with pytest.raises(TooLong, match="/x: answers over 1000 bytes"):
        await Asker(client, await scripted(answer), None).get("/x", 1000)


async def test_redirects_are_not_followed(
    client: aiohttp.ClientSession, scripted: Scripted
) -> None:
    """The key goes to no other server."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"})

    page = await Asker(client, await scripted(answer), "secret").get("/x", 10)
    assert page.status == 302


async def test_no_answer(client: aiohttp.ClientSession, scripted: Scripted) -> None:
    """Whatever keeps an answer from coming is one error, with the path."""

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(5.0)
        return web.Response()

    with pytest.raises(Unanswered, match="/x: no answer in time"):
        await Asker(client, await scripted(answer), None, timeout=SHORT).get("/x", 9)
    with pytest.raises(Unanswered, match="/x: "):
        await Asker(client, "http://127.0.0.1:9", None).get("/x", 9)


async def test_a_connection_that_rested(client: aiohttp.ClientSession) -> None:
    """Workers close those just as they are asked again: no fault of theirs."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntea"
    questions = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for page in (answer, b""):
            head = await reader.readuntil(b"\r\n\r\n")
            questions.append((head[:7], await reader.readexactly(2)))
            writer.write(page)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        asker = Asker(client, f"http://127.0.0.1:{port}", None)
        for _ in range(2):
            assert (await asker.post("/x", b"{}", 3)).body == b"tea"
    assert questions == [(b"POST /x", b"{}")] * 3


async def test_no_http(client: aiohttp.ClientSession) -> None:
    """Something else than a server of HTTP answers."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9\r\n" * 100)
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unanswered, match="/x: "):
            await Asker(client, f"http://127.0.0.1:{port}", None).get("/x", 9)
