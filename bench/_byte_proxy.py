"""The baseline of streams: bytes from one socket to another, and nothing else.

It parses nothing, chooses nothing, counts nothing, and knows no slow client: what is
left is what two sockets and an event loop cost.
"""

import asyncio
import sys
from typing import cast
from urllib.parse import urlsplit

import uvloop


class _Side(asyncio.Protocol):
    """One of two connections; what it hears goes to the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self.heard = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.heard += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()
        self.other = self.transport = None


class _Client(_Side):
    """The side that asks: the worker is connected to as soon as it comes."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._host = host
        self._port = port
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._joining = asyncio.create_task(self._join())

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_connection(_Side, self._host, self._port)
        self.other, worker.other = worker, self
        if self.heard and worker.transport is not None:
            worker.transport.write(bytes(self.heard))


async def _serve(worker: str) -> None:
    parts, loop = urlsplit(worker), asyncio.get_running_loop()
    host, port = parts.hostname or "", parts.port or 80
    server = await loop.create_server(
        lambda: _Client(host, port), "127.0.0.1", 0, backlog=4096
    )
    own = server.sockets[0].getsockname()[1]
    print(f"ready http://127.0.0.1:{own}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        uvloop.run(_serve(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(0)
