"""A worker that streams at a steady pace and stamps each event: no framework.

The pace is that of the request: `"user":"INTERVAL_S"`. Each stream has a number of
events that nobody reads to the end; it goes on until its connection is closed.
"""

import asyncio
import random
import re
import time
from typing import cast

from bench._raw_worker import MODELS, NOT_FOUND, STREAM_HEAD, serve

INTERVAL = re.compile(rb'"user":"([0-9.]+)"')
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" token"}}],"sent":%.6f}\n\n'
)


class StreamWorker(asyncio.Protocol):
    """One connection, one stream."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or self._transport is None:
            return
        if head.startswith(b"GET"):
            self._buffer = b""
            models = head.startswith(b"GET /v1/models")
            self._transport.write(MODELS if models else NOT_FOUND)
        elif interval := INTERVAL.search(body):
            self._buffer = b""
            self._transport.write(STREAM_HEAD)
            self._write()
            asyncio.get_running_loop().call_later(
                random.random() * float(interval[1]), self._next, float(interval[1])
            )

    def _next(self, interval: float) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._write()
            asyncio.get_running_loop().call_later(interval, self._next, interval)

    def _write(self) -> None:
        assert self._transport is not None
        event = EVENT % time.monotonic()
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


if __name__ == "__main__":
    serve(StreamWorker)
