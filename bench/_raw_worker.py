"""A worker that costs next to nothing: canned answers, no framework.

Answers /v1/models, and POSTs with a JSON body of 700 bytes or, where the request
says `"stream": true`, with an event stream of 32 events.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import cast

import msgspec
import uvloop

EVENTS = 32


def _head(content_type: str, framing: str) -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{framing}\r\n\r\n"
    ).encode()


def _json(value: object) -> bytes:
    body = msgspec.json.encode(value)
    return _head("application/json", f"Content-Length: {len(body)}") + body


def _stream() -> list[bytes]:
    events = []
    for number in range(EVENTS):
        delta = {"index": 0, "delta": {"content": f" token{number}"}}
        event = {"id": "chatcmpl-1", "object": "chat.completion.chunk",
                 "model": "m", "choices": [delta]}  # fmt: skip
        events.append(b"data: " + msgspec.json.encode(event) + b"\n\n")
    events.append(b"data: [DONE]\n\n")
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in events]


MODELS = _json({"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]})
ANSWER = _json(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "x" * 500}}
        ],
        "usage": {"prompt_tokens": 200, "completion_tokens": 100,
                  "prompt_tokens_details": {"cached_tokens": 0}},
    }
)  # fmt: skip
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
STREAM_HEAD = _head("text/event-stream", "Transfer-Encoding: chunked")
STREAM = _stream()


class RawWorker(asyncio.Protocol):
    """Reads a request by its Content-Length and writes what it asks for."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self._buffer[:head_end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < head_end + 4 + length:
            return
        body = self._buffer[head_end + 4 :]
        self._buffer = b""
        self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        if head.startswith(b"get /v1/models"):
            self._transport.write(MODELS)
        elif head.startswith(b"get"):
            self._transport.write(NOT_FOUND)
        elif b'"stream":true' in body[:200]:
            self._transport.write(STREAM_HEAD)
            self._next(0)
        else:
            self._transport.write(ANSWER)

    def _next(self, number: int) -> None:
        """One event a turn of the loop, as an engine writes one a step."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(STREAM[number])
        if number + 1 < len(STREAM):
            asyncio.get_running_loop().call_later(0.001, self._next, number + 1)
        else:
            self._transport.write(b"0\r\n\r\n")


async def _serve(worker: Callable[[], asyncio.Protocol]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(worker, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    print(f"ready http://127.0.0.1:{port}", flush=True)
    await server.serve_forever()


def serve(worker: Callable[[], asyncio.Protocol]) -> None:
    """One `worker` for each connection, until Ctrl-C."""
    try:
        uvloop.run(_serve(worker))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    serve(RawWorker)
