"""Derendering over HTTP: whole answers, a request for each chunk, and whole streams."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from gateway.endpoints import derender_endpoints
from gateway.request import body as bodies
from render import Renderer
from render.parsers import json_calls
from tests.gateway.render_rig import RunningRenderServer, StartRenderServer
from tests.running import MODEL, StartGateway, StartWorker

CHAT = "/v1/chat/completions/derender"
STREAM = f"{CHAT}/stream"
PARSERS = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
REQUEST = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": TOOLS,
    "stream": True,
    "stream_options": {"include_usage": True},
}
ANSWER = (
    "<think>\nIt asks for 東京 🗼.\n</think>\n\nLet me see.\n<tool_call>\n"
    '{"name": "get_weather", "arguments": {"city": "Zürich 🚢"}}\n</tool_call>'
)

pytestmark = pytest.mark.usefixtures("never_blocks")


def ids_of(renderer: Renderer, text: str) -> list[int]:
    """The ids of a text, and the one that ends an answer."""
    body = {"prompt": text, "add_special_tokens": False}
    (rendered,) = renderer.render_completion(body)
    end = renderer.vocabulary.added_ids["<|im_end|>"]
    return [*memoryview(rendered.token_ids).cast("I").tolist(), end]


def event(value: object) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def engine_stream(ids: list[int], size: int, choices: int = 1) -> Iterator[bytes]:
    """What an engine streams, so many ids at a time."""
    for place in range(0, len(ids), size):
        last = place + size >= len(ids)
        for index in range(choices):
            piece = {
                "index": index,
                "token_ids": ids[place : place + size],
                "finish_reason": "stop" if last else None,
            }
            yield event({"request_id": "r-1", "choices": [piece]})
    yield b"data: [DONE]\n\n"


async def streamed(
    server: Any, opening: dict[str, Any] | None, events: Iterator[bytes], cut: int = 0
) -> list[Any]:
    """The chunks of the answer to a stream, whose bytes are cut anywhere."""
    whole = b"".join(([event(opening)] if opening is not None else []) + [*events])

    async def pieces() -> AsyncIterator[bytes]:
        step = cut or len(whole)
        for place in range(0, len(whole), step):
            yield whole[place : place + step]

    url = server.url + STREAM
    async with server.client.post(url, data=pieces()) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        text = await response.text()
    data = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert data.pop() == "[DONE]"
    return [json.loads(one) for one in data]


def message_of(chunks: list[Any], index: int = 0) -> dict[str, Any]:
    """What a client puts together from a stream's chunks."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls", ()):
                message["calls"].append(call["function"])
            message["finish_reason"] = choice["finish_reason"]
    return message


async def whole(server: RunningRenderServer, ids: list[int]) -> dict[str, Any]:
    """The same answer, not streamed."""
    choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
    body = {
        "generate_response": {"request_id": "r-1", "choices": [choice]},
        "chat_request": REQUEST,
        "prompt_token_ids": [1, 2],
    }
    got = await server.post(CHAT, body)
    (only,) = got["choices"]
    message = only["message"]
    return {
        "content": message["content"],
        "reasoning": message["reasoning"],
        "calls": [call["function"] for call in message["tool_calls"]],
        "finish_reason": only["finish_reason"],
    }


@pytest.mark.parametrize(("size", "cut"), [(1, 0), (1, 1), (3, 50), (1000, 0)])
async def test_streamed_equals_whole(
    start_render_server: StartRenderServer, renderer: Renderer, size: int, cut: int
) -> None:
    """Reasoning, content and calls, however ids and bytes are cut; the counts."""
    server = await start_render_server(**PARSERS)
    ids = ids_of(renderer, ANSWER)
    opening = {"model": MODEL, "chat_request": REQUEST, "prompt_token_ids": [1, 2]}
    chunks = await streamed(server, opening, engine_stream(ids, size), cut)
    wanted = await whole(server, ids)
    assert message_of(chunks) == wanted
    assert wanted["content"] == "\n\nLet me see.\n"
    assert wanted["reasoning"] == "\nIt asks for 東京 🗼.\n"
    assert wanted["finish_reason"] == "tool_calls"
    assert json.loads(wanted["calls"][0]["arguments"]) == {"city": "Zürich 🚢"}
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (2, len(ids))
    assert {chunk["id"] for chunk in chunks} == {"r-1"}
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


async def test_several_choices(
    start_render_server: StartRenderServer, renderer: Renderer
) -> None:
    """Each has its own text and its own end."""
    server = await start_render_server(**PARSERS)
    ids = ids_of(renderer, ANSWER)
    opening = {"chat_request": REQUEST, "prompt_token_ids": [1, 2]}
    chunks = await streamed(server, opening, engine_stream(ids, 2, choices=3))
    wanted = await whole(server, ids)
    assert [message_of(chunks, index) for index in range(3)] == [wanted] * 3


async def test_without_a_request(
    start_render_server: StartRenderServer, renderer: Renderer
) -> None:
    """A stream that nothing opens is plain text."""
    server = await start_render_server(**PARSERS)
    ids = ids_of(renderer, "<think>a</think>b")
    chunks = await streamed(server, None, engine_stream(ids, 1))
    assert message_of(chunks)["content"] == "<think>a</think>b"


async def test_stop_strings_in_a_stream(
    start_render_server: StartRenderServer, renderer: Renderer
) -> None:
    """The stream ends where one begins, though the engine goes on."""
    server = await start_render_server()
    ids = ids_of(renderer, "one two three four")
    opening = {"chat_request": REQUEST | {"stop": ["two thr"]}}
    chunks = await streamed(server, opening, engine_stream(ids, 1))
    message = message_of(chunks)
    assert (message["content"], message["finish_reason"]) == ("one ", "stop")
    stopped = [c["choices"][0] for c in chunks if c["choices"]][-1]
    assert stopped["stop_reason"] == "two thr"


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("parsers", [PARSERS, {}], ids=["parsed", "plain"])
async def test_a_request_for_each_chunk(
    start_render_server: StartRenderServer,
    renderer: Renderer,
    size: int,
    parsers: dict[str, Any],
) -> None:
    """vLLM's form: the state goes back and forth; the same answer, the same ids."""
    server = await start_render_server(**parsers)
    ids = ids_of(renderer, ANSWER)
    state, chunks = None, []
    for place in range(0, len(ids), size):
        last = place + size >= len(ids)
        piece = {
            "index": 0,
            "token_ids": ids[place : place + size],
            "finish_reason": "stop" if last else None,
        }
        body = {
            "stream": True,
            "generate_chunk": {"request_id": "r-1", "choices": [piece]},
            "stream_state": state,
            "prompt_token_ids": [1, 2],
            "chat_request": REQUEST,
        }
        got = await server.post(CHAT, body)
        chunks.append(got["chunk"])
        state = got["stream_state"]
        assert len(state["prev_tokens"]) < 10
    message = message_of(chunks)
    if parsers:
        assert message == await whole(server, ids)
        assert state is not None
        assert state["output_token_ids"] == ids
        assert len(state["last_tool_call_ids"]) == 1
    else:
        assert message["content"] == ANSWER


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


async def test_on_the_gateway(
    start_worker: StartWorker, start_gateway: StartGateway, renderer: Renderer
) -> None:
    """The front door derenders, too, and an OpenAI client reads its answers."""
    gateway = await start_gateway(await start_worker(), **PARSERS)
    ids = ids_of(renderer, ANSWER)
    opening = {"model": MODEL, "chat_request": REQUEST, "prompt_token_ids": [1]}
    chunks = await streamed(gateway, opening, engine_stream(ids, 1))
    for chunk in chunks:
        openai.types.chat.ChatCompletionChunk.model_validate(chunk)
    assert message_of(chunks)["calls"][0]["name"] == "get_weather"
    assert await gateway.metric("requests_total", endpoint="chat_derender_stream") == 1


async def test_a_long_call_is_read_in_a_thread(
    start_render_server: StartRenderServer,
    renderer: Renderer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once many ids wait for its end, the event loop is not where they are read."""
    server = await start_render_server(**PARSERS)
    arguments = {"city": "Zürich 🚢 " * 800}
    call = json.dumps({"name": "get_weather", "arguments": arguments})
    ids = ids_of(renderer, f"</think>\n<tool_call>\n{call}\n</tool_call>")
    assert len(ids) > 2 * derender_endpoints.KEPT_AT_ONCE
    where: list[threading.Thread] = []

    def load(text: str) -> Any:
        where.append(threading.current_thread())
        return json.loads(text)

    monkeypatch.setattr(json_calls, "load", load)
    opening = {"model": MODEL, "chat_request": REQUEST}
    chunks = await streamed(server, opening, engine_stream(ids, 500))
    calls = [
        one
        for chunk in chunks
        for choice in chunk["choices"]
        for one in choice["delta"].get("tool_calls", ())
    ]
    assert json.loads(calls[0]["function"]["arguments"]) == arguments
    assert [thread is threading.main_thread() for thread in where] == [False]
