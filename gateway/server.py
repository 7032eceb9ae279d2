"""The HTTP server: aiohttp's, with every default that matters set on purpose.

Beyond public names of aiohttp 3.14 it uses seven: ``AppRunner._make_server`` and
``Server._loop``, to have connections of our own class; of ``RequestHandler``
``_messages``, to see that a body broke off (its C parser tells nobody who is waiting
for the body), ``_waiter``, to see that it waits for a head, ``_close`` and
``_force_close``: once they are set it throws away what comes of a body that has begun,
and ``_task_handler``, to end a request while its client can still be told.
"""

import asyncio
import logging
import socket
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, StreamReader, hdrs, web
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import LineTooLong

from gateway.errors import (
    BadFraming,
    BadRequest,
    GatewayError,
    HeadTooLarge,
    MethodNotAllowed,
)

log = logging.getLogger(__name__)

SERVER = "kv-gateway"
"""What own answers say of the server: no versions of what it is made of."""

KEEP_ALIVE_S = 75.0
"""Free client connections are kept this long; proxies before us keep theirs less."""

HEADER_LIMIT = 64 * 1024
"""Bytes of the request line, and of one header."""

HEAD_LIMIT = 256 * 1024
"""Bytes of a head that are kept until it is complete."""

HEADER_COUNT = 1024
"""Headers of a request: no more, as trailers, too, are kept up to so many."""

TOO_MANY = "Too many headers received"
"""How aiohttp's parser names it."""

CANCEL_S = 0.05
"""What is still open after its time has this long to end, thrice at most."""

TIME_OVER = "the time of open requests is over"
"""What such a cancellation says, so that nobody takes it for a client that left."""

UNTAKEN_S = 300
"""A client that acknowledges nothing for this long loses its connection (Linux)."""


def make_runner(app: web.Application, *, shutdown_s: float = 60.0) -> "Runner":
    """The runner of `app`; whoever calls it sets it up and adds sites.

    What differs from aiohttp 3.14's defaults, and why:
    - a client that leaves cancels its handler, and so its request to the worker;
    - request bodies are not decompressed: a worker gets what the client sent;
    - long and many header lines pass, as workers take them (tokens, traces, cookies);
    - no access log line per request;
    - after an early answer the rest of the body is read for a few seconds, so that
      the client gets to read the answer.
    Bodies are limited by `gateway.request.body`, not by ``client_max_size``.
    """
    return Runner(
        app,
        auto_decompress=False,
        max_headers=HEADER_COUNT,
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
        keepalive_timeout=KEEP_ALIVE_S,
        lingering_time=5.0,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=shutdown_s,
    )


class ClientConnection(web.RequestHandler):
    """A client's connection, as aiohttp has it, with eight faults mended.

    A body that becomes unreadable fails its reader at once; what is not HTTP gets an
    answer in OpenAI's shape, without its input and without a stack trace in the log;
    a client that takes nothing does not keep its connection for ever; a head is limited
    as a whole, not only line by line; the end takes as long as was given, not twice; a
    body that has begun is read on meanwhile; answers say that the connection ends; who
    is still open then can be told before it closes.
    """

    __slots__ = ("_head_size", "_server", "body")

    def __init__(self, server: "_Server", **kwargs: Any) -> None:
        super().__init__(server, **kwargs)
        self._server = server
        self.body: StreamReader | None = None
        """The body that is being read."""
        self._head_size = 0  # bytes of a head that is not complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        of_tcp = sock is not None and sock.family is not socket.AF_UNIX
        if of_tcp and hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_S * 1000
            )

    def data_received(self, data: bytes) -> None:
        between_requests = self._waiter is not None
        self._take(data)
        if between_requests and not self._messages:
            self._limit_head(len(data))
        else:
            self._head_size = 0
        body = self.body
        if body is not None and self._messages and not body.is_eof():
            # A further message before the end of this body is a parsing error.
            body.set_exception(web.RequestPayloadError("badly framed"))

    def _take(self, data: bytes) -> None:
        closing = self._close, self._force_close
        if self.body is not None and self.transport is not None:
            self._close = self._force_close = False
        super().data_received(data)
        self._close |= closing[0]
        self._force_close |= closing[1]

    @property
    def leaving(self) -> bool:
        """Whether the server is about to end: it wants no further request."""
        return self._server.leaving

    async def finish_response(
        self,
        request: web.BaseRequest,
        resp: web.StreamResponse,
        start_time: float | None,
    ) -> tuple[web.StreamResponse, bool]:
        if self.leaving:
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    def _limit_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > HEAD_LIMIT and self.transport is not None:
            self.transport.write(_HEAD_TOO_LARGE)
            self.force_close()

    async def shutdown(
        self,
        timeout: float | None = 15.0,  # noqa: ASYNC109 - so aiohttp calls it
    ) -> None:
        """Let its request end within so many seconds, then cancel that and close.

        aiohttp waits for as long once more, and takes 0 for no limit.
        """
        try:
            async with asyncio.timeout(timeout):
                await super().shutdown(None)
        except TimeoutError:
            await self._cancel_request()
            await super().shutdown(CANCEL_S)

    async def _cancel_request(self) -> None:
        """Have its handler say the last word: aiohttp would close in the same step."""
        task = self._task_handler
        if task is not None and not task.done():
            task.cancel(TIME_OVER)
            await asyncio.wait({task}, timeout=CANCEL_S)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError):
            return super().handle_error(request, status, exc, message)
        log.debug("not HTTP: %s", type(exc).__name__)
        error: GatewayError = BadRequest("the request is not valid HTTP/1.1")
        if isinstance(exc, LineTooLong) or exc.message == TOO_MANY:
            error = HeadTooLarge("its head has a line too long, or too many lines")
        response = web.Response(
            body=error.body(), status=error.status, content_type="application/json"
        )
        response.headers[hdrs.CONNECTION] = "close"
        response.headers[hdrs.SERVER] = SERVER
        response.force_close()
        return response


def is_time_over(error: asyncio.CancelledError) -> bool:
    """Whether it is the gateway that ends a request, not its client."""
    return TIME_OVER in error.args


def _closing_answer(error: GatewayError, reason: bytes) -> bytes:
    """A whole answer, for a connection that has no request to answer."""
    body = error.body()
    lines = (
        b"HTTP/1.1 %d %b" % (error.status, reason),
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        b"Connection: close",
    )
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


_HEAD_TOO_LARGE = _closing_answer(
    HeadTooLarge(f"the request's head is over {HEAD_LIMIT} bytes"),
    b"Request Header Fields Too Large",
)


def check_framing(request: web.BaseRequest) -> None:
    """Refuse what aiohttp's parser takes but no worker would read alike.

    Raises BadFraming for versions other than HTTP/1.0 and 1.1, for a ``#`` in the
    target, where a path ends for some and not for others, and for a body with a
    transfer coding besides ``chunked``, which would reach the worker still coded;
    MethodNotAllowed for TRACE, whose answer would show the headers a worker gets, and
    for CONNECT, whose answer would begin a tunnel.
    """
    if request.method in (hdrs.METH_TRACE, hdrs.METH_CONNECT):
        raise MethodNotAllowed(f"{request.method} is not answered")
    if request.version not in (HttpVersion10, HttpVersion11):
        raise BadFraming("the request is neither HTTP/1.0 nor HTTP/1.1")
    if "#" in request.raw_path:
        raise BadFraming("a request's target has no fragment")
    coding = request.headers.get(hdrs.TRANSFER_ENCODING)
    if coding is not None and coding.strip().lower() != "chunked":
        raise BadFraming("the only transfer coding that is taken is chunked")


class _Server(web.Server):
    """Makes a `ClientConnection` per connection."""

    def __init__(self, made: web.Server, options: dict[str, Any]) -> None:
        super().__init__(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=True,
        )
        self._options = options
        self.leaving = False

    def __call__(self) -> web.RequestHandler:
        return ClientConnection(self, loop=self._loop, **self._options)


class Runner(web.AppRunner):
    """An AppRunner with our server in it."""

    __slots__ = ("_options",)

    def __init__(
        self,
        app: web.Application,
        *,
        handle_signals: bool,
        shutdown_timeout: float,
        **options: Any,
    ) -> None:
        super().__init__(
            app, handle_signals=handle_signals, shutdown_timeout=shutdown_timeout
        )
        self._options = options

    def leave(self) -> None:
        """Answers say from now on that their connection ends."""
        if isinstance(self.server, _Server):
            self.server.leaving = True

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self._options)
