"""Raw-socket peers for the proxy tests: workers that follow a script, and clients."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

WAIT_S = 5.0
"""How long a peer waits for what must come."""


class WorkerConnection:
    """One connection a `RawWorker` accepted, in the hands of its script."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.requests: list[bytes] = []
        """Every request read on this connection: head and body, as they came."""

    async def request(self) -> bytes:
        """Read one request whole, head and body; b"" where the peer has closed.

        A connection may rest for as long as the worker runs: that is no failure.
        """
        try:
            head = await self.head()
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        body = await self._body(head)
        self.requests.append(head + body)
        return head + body

    async def head(self) -> bytes:
        """Read only the head of a request."""
        return await self._reader.readuntil(b"\r\n\r\n")

    async def take(self, size: int) -> bytes:
        """Read exactly `size` bytes."""
        return await asyncio.wait_for(self._reader.readexactly(size), timeout=WAIT_S)

    async def _body(self, head: bytes) -> bytes:
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            return await self._chunked()
        if b"\r\ncontent-length:" not in lower:
            return b""
        length = int(lower.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
        return await self._reader.readexactly(length)

    async def _chunked(self) -> bytes:
        raw = b""
        while True:
            size = await self._reader.readline()
            raw += size + await self._reader.readexactly(int(size, 16) + 2)
            if int(size, 16) == 0:
                return raw

    async def send(self, data: bytes) -> None:
        """Send bytes at once; ConnectionError where the peer has closed."""
        if self._writer.is_closing():  # uvloop's own error would be no ConnectionError
            raise ConnectionResetError
        self._writer.write(data)
        await self._writer.drain()

    async def closed_by_peer(self) -> float:
        """Wait until the gateway has closed; the seconds it took."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(WAIT_S):
                while await self._reader.read(65536):
                    pass
        except ConnectionError:
            pass
        return loop.time() - begun

    def close(self) -> None:
        """Close in the ordinary way (FIN)."""
        self._writer.close()

    def reset(self) -> None:
        """Close so that the peer sees a reset (RST)."""
        reset(self._writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SOL_SOCKET, SO_LINGER: on, 0 s
    writer.transport.abort()


Script = Callable[[WorkerConnection], Awaitable[None]]


class RawWorker(AbstractAsyncContextManager["RawWorker"]):
    """Runs `script` for each connection; closes what the script leaves open.

    `failures` holds what scripts raised; the exit of the context raises the first.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[WorkerConnection] = []
        self.failures: list[BaseException] = []
        self.port = 0

    @property
    def url(self) -> str:
        """Where the worker listens."""
        scheme = "https" if self._tls is not None else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[bytes]:
        """All requests, over all connections."""
        return [r for connection in self.connections for r in connection.requests]

    async def __aenter__(self) -> "RawWorker":
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=1 << 20, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failures and error is None:
            raise self.failures[0]

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = WorkerConnection(reader, writer)
        self.connections.append(connection)
        try:
            await self._script(connection)
        except (ConnectionError, asyncio.CancelledError):
            pass
        except Exception as failure:
            self.failures.append(failure)
        finally:
            writer.close()


def answering(*parts: bytes, gap_s: float = 0.0) -> Script:
    """A script that answers every request of a connection with these writes."""

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            for index, part in enumerate(parts):
                if index and gap_s:
                    await asyncio.sleep(gap_s)
                await connection.send(part)

    return script


def resetting(answer: bytes) -> Script:
    """A script that answers a connection's first request; its second is the end."""

    async def script(connection: WorkerConnection) -> None:
        await connection.request()
        await connection.send(answer)
        await connection.head()
        connection.reset()

    return script


def json_answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole answer with a length."""
    lines = [
        b"HTTP/1.1 " + status,
        b"Content-Type: application/json",
        *headers,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number: int) -> bytes:
    """A small event."""
    return b'data: {"choices":[{"delta":{"content":"t%d"}}]}\n\n' % number


class RawClient(AbstractAsyncContextManager["RawClient"]):
    """A client on a raw socket."""

    def __init__(
        self, port: int, *, limit: int = 1 << 24, tls: ssl.SSLContext | None = None
    ) -> None:
        self._port = port
        self._tls = tls
        self._limit = limit

    async def __aenter__(self) -> "RawClient":
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=self._limit, ssl=self._tls
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, data: bytes) -> None:
        """Send bytes at once."""
        self.writer.write(data)
        await self.writer.drain()

    async def post(
        self,
        body: bytes,
        *headers: bytes,
        path: bytes = b"/v1/chat/completions",
        kind: bytes = b"application/json",
    ) -> None:
        """Send a POST with a length."""
        lines = [
            b"POST %b HTTP/1.1" % path,
            b"Host: gateway",
            b"Content-Type: %b" % kind,
            *headers,
            b"Content-Length: %d" % len(body),
        ]
        await self.send(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    async def head(self) -> bytes:
        """Read a head."""
        return await self._within(self.reader.readuntil(b"\r\n\r\n"))

    async def answer(self) -> tuple[bytes, bytes]:
        """Read one answer with a length or chunks: its head and its body."""
        head = await self.head()
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            return head, b"".join([piece async for piece in self.chunks()])
        if b"content-length:" in lower:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            return head, await self._within(self.reader.readexactly(length))
        return head, await self.rest()

    async def chunk(self) -> bytes:
        """Read one chunk; b"" is the last one."""
        size = await self._within(self.reader.readline())
        data = await self._within(self.reader.readexactly(int(size, 16) + 2))
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def rest(self) -> bytes:
        """Read until the gateway closes."""
        return await self._within(self.reader.read(-1))

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read the chunks that are left."""
        while piece := await self.chunk():
            yield piece

    @staticmethod
    async def _within(wait: Awaitable[bytes]) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await wait


CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'
