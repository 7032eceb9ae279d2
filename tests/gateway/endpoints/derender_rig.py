"""An engine's answers in ids, and what comes of them over HTTP."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from render import Renderer
from tests.gateway.render_rig import RunningRenderServer
from tests.running import MODEL

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
