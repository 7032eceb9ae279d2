"""The client's side of a relay: writes an answer to the client's connection.

aiohttp parses requests and keeps connections; the answer is written to its transport
directly, head and body, as the bytes that came. That halves the cost of an event and
keeps aiohttp's own headers out of answers that are not its own. Only public names of
aiohttp 3.14 are used: `Request.transport`, `Request.writer`, and the methods that
`RelayedResponse` overrides.
"""

import socket
import struct

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway.access.cross_origin import told_for
from gateway.errors import GatewayError
from gateway.request.headers import RawHeaders, first, serialize, to_client
from gateway.server import ClientConnection

BUFFER_HIGH = 256 * 1024
"""Bytes that wait for a slow client before the worker is paused."""

BUFFER_LOW = 64 * 1024
"""Bytes that may still wait when the worker is resumed."""

SHORT = 2048
"""Pieces below this are most of all: the line before them is not made each time."""

_SIZE_LINES = tuple(b"%x\r\n" % size for size in range(SHORT))
_LINGER_NOT = struct.pack("ii", 1, 0)  # close with a reset
_BODILESS = frozenset({204, 304})


class RelayedResponse(web.StreamResponse):
    """What aiohttp is handed once an answer has been written: it writes nothing.

    `error` is what ended the answer before its end, None where it is complete.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status=status)
        self.error: GatewayError | None = None
        self.reusable = True

    @property
    def keep_alive(self) -> bool:
        """Whether the client's connection can carry another request."""
        return self.reusable

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Nothing: the head has been written."""
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing: the end has been written."""


class ClientWriter:
    """Writes one answer: its head with the first bytes of body, the body, the end.

    The body keeps the worker's framing where it has a length; otherwise it is
    chunked, or ends with the connection for an HTTP/1.0 client.
    """

    __slots__ = (
        "_ends_with_connection",
        "_head",
        "_transport",
        "_writer",
        "chunked",
        "open_ended",
        "response",
        "started",
    )

    def __init__(
        self,
        request: web.Request,
        *,
        status: int,
        reason: bytes,
        headers: RawHeaders,
        request_id: bytes,
        extra: RawHeaders = (),
    ) -> None:
        """`extra` headers of ours go at the end, in place of the worker's."""
        self.response = RelayedResponse(status)
        self._transport = request.transport
        self._writer = request.writer
        sized = first(headers, b"content-length") is not None
        bodiless = request.method == "HEAD" or status in _BODILESS
        self.chunked = not sized and not bodiless and request.version >= HttpVersion11
        self._ends_with_connection = not (sized or bodiless or self.chunked)
        self.open_ended = self.chunked or self._ends_with_connection
        """Something may be added to the body: its length has not been announced."""
        self.response.reusable = not self._ends_with_connection and _goes_on(request)
        headers = told_for(request, headers)
        own = self._own_headers(request)
        self._head = serialize(
            b"HTTP/%d.%d %d %b" % (*request.version, status, reason),
            [*to_client(headers, request_id=request_id, extra=extra), *own],
        )
        self.started = False

    def _own_headers(self, request: web.Request) -> list[tuple[bytes, bytes]]:
        own = [(b"Transfer-Encoding", b"chunked")] if self.chunked else []
        if request.version < HttpVersion11:
            if self.response.reusable:
                own.append((b"Connection", b"keep-alive"))
        elif not self.response.reusable:
            own.append((b"Connection", b"close"))
        return own

    @property
    def gone(self) -> bool:
        """The client has left, or said that it sends and reads nothing more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def waiting(self) -> int:
        """Bytes that the client has not taken yet."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def limit_buffer(self) -> None:
        """Make `drained` wait down to `BUFFER_LOW`, from `BUFFER_HIGH` on."""
        if self._transport is not None and not self.gone:
            self._transport.set_write_buffer_limits(high=BUFFER_HIGH, low=BUFFER_LOW)

    async def drained(self) -> None:
        """Return once the client has taken enough; ConnectionError if it left."""
        await self._writer.drain()

    def start(self) -> None:
        """Write the head, if nothing has been written yet."""
        if not self.started:
            self._write(b"")

    def body(self, data: bytes) -> bool:
        """Write a part of the body, which is not empty.

        Whether that is enough for now: more waits than should, or the client is gone.
        """
        if self.chunked:
            size = len(data)
            line = _SIZE_LINES[size] if size < SHORT else b"%x\r\n" % size
            data = line + data + b"\r\n"
        transport = self._transport
        if not self.started or transport is None or transport.is_closing():
            self._write(data)
            return self.gone or self.waiting > BUFFER_HIGH
        transport.write(data)
        return transport.get_write_buffer_size() > BUFFER_HIGH

    def end(self) -> None:
        """Write the end of the body."""
        self._write(b"0\r\n\r\n" if self.chunked else b"")

    def cut(self) -> None:
        """End so that the client notices: the body is not complete."""
        self.response.reusable = False
        transport = self._transport
        if transport is None:
            return
        if self._ends_with_connection and not self.gone:
            # An ordinary end would be taken for the end of the body.
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        transport.abort()

    def _write(self, data: bytes) -> None:
        if not self.started:
            self.started = True
            data = self._head + data
            self._writer.output_size += len(data)  # tells aiohttp that it has begun
        transport = self._transport
        if data and transport is not None and not transport.is_closing():
            transport.write(data)


def _goes_on(request: web.Request) -> bool:
    """Whether the client's connection may carry another request."""
    connection = request.protocol
    leaving = isinstance(connection, ClientConnection) and connection.leaving
    return request.keep_alive and not leaving


def cut(request: web.Request, status: int = 500) -> RelayedResponse:
    """End an answer that has begun and cannot be gone on with; nothing is added.

    It counts as one of this `status`.
    """
    response = RelayedResponse(status)
    response.reusable = False
    if request.transport is not None:
        request.transport.abort()
    return response
