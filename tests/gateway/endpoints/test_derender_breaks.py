"""Derendered streams that cannot begin, break off, or that nobody reads."""

import asyncio

import pytest

from gateway.request import body as bodies
from render import Renderer
from tests.gateway.endpoints.derender_rig import (
    PARSERS,
    REQUEST,
    STREAM,
    event,
    ids_of,
    message_of,
    streamed,
)
from tests.gateway.render_rig import StartRenderServer

pytestmark = pytest.mark.usefixtures("never_blocks")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"data: {\n\n", 400, "JSON decode error"),
        (b"data: []\n\n", 400, "valid dictionary"),
        (event({"model": "nope"}), 404, "does not exist"),
        (event({"chat_request": {"messages": 5}}), 400, "messages"),
        (event({"choices": [{"index": 0, "token_ids": [-1]}]}), 400, "token_ids.0"),
        (event({"choices": 5}), 400, "choices"),
    ],
)
async def test_streams_that_cannot_begin(
    start_render_server: StartRenderServer, body: bytes, status: int, words: str
) -> None:
    """An error before the first answer is a status."""
    server = await start_render_server(**PARSERS)
    got, answer, _ = await server.send(STREAM, body)
    assert got == status
    assert words in answer["error"]["message"]


async def test_streams_that_break_off(
    start_render_server: StartRenderServer, renderer: Renderer
) -> None:
    """What was kept back is sent at the end, without a reason to end."""
    server = await start_render_server(**PARSERS)
    text = 'so</think>well <tool_call>{"name": "get_w'
    ids = ids_of(renderer, text)[:-1]
    piece = {"index": 0, "token_ids": ids}
    opening = {"chat_request": REQUEST, "prompt_token_ids": [1, 2]}
    broken = event({"request_id": "r", "choices": [piece]})
    message = message_of(await streamed(server, opening, iter([broken])))
    assert message["reasoning"] + "</think>" + message["content"] == text
    assert message["finish_reason"] is None


async def test_errors_in_the_middle(
    start_render_server: StartRenderServer, renderer: Renderer
) -> None:
    """They are an event, the engine's own too, and the stream ends well."""
    server = await start_render_server()
    good = event({"request_id": "r", "choices": [{"index": 0, "token_ids": [9707]}]})
    theirs = event({"error": {"message": "out of memory"}})
    bad = event({"request_id": "r", "choices": [{"index": 0, "token_ids": [2**31]}]})
    first, own, ours = await streamed(server, None, iter([good, theirs, bad]), cut=1)
    assert first["choices"][0]["delta"]["content"] == "Hello"
    assert own["error"]["message"] == "out of memory"
    assert "out of vocabulary" in ours["error"]["message"]


async def test_a_body_that_breaks_in_the_middle(
    start_render_server: StartRenderServer,
) -> None:
    """The error is the last event, without [DONE], and no second answer."""
    server = await start_render_server()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    good = event({"request_id": "r", "choices": [{"index": 0, "token_ids": [9707]}]})
    head = f"POST {STREAM} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode() + b"%x\r\n%b\r\n" % (len(good), good))
    async with asyncio.timeout(5):
        begun = await reader.readuntil(b"\n\n\r\n")
        writer.write(b"no size\r\n")
        rest = await reader.read()
    writer.close()
    assert b"Hello" in begun
    assert b"bad_framing" in rest
    assert b"HTTP/1.1" not in rest
    assert b"[DONE]" not in rest


@pytest.mark.parametrize("status", ["499", "client_gone"])
async def test_a_client_that_takes_nothing_is_cut_off(
    start_render_server: StartRenderServer,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that sends all before it reads, or left, holds nothing and is no failure."""
    monkeypatch.setattr(bodies, "STALL_S", 0.5)
    server = await start_render_server()

    def part(number: int) -> bytes:
        ids = [9707] * 4000
        given = [{"index": 20 * number + i, "token_ids": ids} for i in range(20)]
        said = event({"request_id": "r", "choices": given})
        return b"%x\r\n%b\r\n" % (len(said), said)

    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    head = f"POST {STREAM} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode() + part(0))
    await reader.readuntil(b"\r\n\r\n")
    if status == "client_gone":
        writer.transport.abort()
    async with asyncio.timeout(20):
        for number in range(1, 1000):
            if await server.metric("requests_total", status=status):
                break
            if not writer.transport.is_closing():
                writer.write(part(number))
            await asyncio.sleep(0.01)
    assert await server.metric("requests_total", status=status) == 1
    writer.transport.abort()
    assert not caplog.records
