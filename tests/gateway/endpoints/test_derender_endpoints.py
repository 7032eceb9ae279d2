"""Derendering over HTTP: whole answers, a request for each chunk, and whole streams."""

import json
import threading
from typing import Any

import openai
import pytest

from gateway.endpoints import derender_endpoints
from render import Renderer
from render.parsers import json_calls
from tests.gateway.endpoints.derender_rig import (
    ANSWER,
    CHAT,
    PARSERS,
    REQUEST,
    engine_stream,
    ids_of,
    message_of,
    streamed,
    whole,
)
from tests.gateway.render_rig import StartRenderServer
from tests.running import MODEL, StartGateway, StartWorker

pytestmark = pytest.mark.usefixtures("never_blocks")


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
