"""Connections to all workers: take a free one or open one, send, give it back.

No limit on concurrent requests. Free connections are kept for at most 3 s, as a
worker may close them at any time, and dropped as soon as they end. Retries are the
handler's decision; the errors say what it needs to know.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from gateway.errors import BadRequest, ConnectFailed
from gateway.request.headers import RawHeaders, serialize
from gateway.upstreams.exchange import Exchange, Timeouts
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream_connection import UpstreamConnection
from gateway.upstreams.upstream_response import UpstreamResponse

FREE_S = 3.0
"""How long a free connection is kept, in seconds."""

FREE_LIMIT = 256
"""Free connections kept per worker."""

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class UpstreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it goes to a worker.

    `target` is path and query as raw bytes, `headers` come from `headers.to_worker`.
    A streamed body is sent with `length`, or chunked where that is None. `expected_s`
    is how long the worker may well take until its answer begins. `fresh`: it gets a
    connection of its own, as a free one may just have ended.
    """

    method: str
    target: bytes
    headers: RawHeaders
    body: bytes | AsyncIterator[bytes] = b""
    length: int | None = None
    expected_s: float = 0.0
    fresh: bool = False


class Upstreams:
    """All connections to workers. Belongs to one event loop; `close` it."""

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        clock: Callable[[], float] = time.monotonic,
        free_s: float = FREE_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` is what https workers are spoken with; None: as the system does."""
        self._timeouts = timeouts or Timeouts()
        self._clock = clock
        self._free_s = free_s
        self._free: dict[Origin, deque[UpstreamConnection]] = {}
        self._all: set[UpstreamConnection] = set()
        self._tls = tls
        self._timer: asyncio.TimerHandle | None = None
        shortest = min(self._timeouts.first_byte_s, self._timeouts.idle_s, free_s)
        self._tick_s = min(1.0, shortest / 4)

    async def send(self, origin: Origin, request: UpstreamRequest) -> UpstreamResponse:
        """Send `request`; return when the head of the answer has come.

        Raises ConnectFailed, StaleConnection, UpstreamReset, MalformedAnswer or
        UpstreamTimeout, what a streamed body raises, and BadRequest for a head that
        cannot be written. Cancelled, it closes the connection.
        """
        head = _head(origin, request)
        connection = None if request.fresh else self._take(origin)
        connection = connection or await self._connect(origin)
        exchange = connection.begin(
            answers_head=request.method == "HEAD", expected_s=request.expected_s
        )
        try:
            _start(exchange, head, request)
            return await exchange.answered()
        except BaseException:
            exchange.abort()
            await exchange.settled()
            raise

    @property
    def open_connections(self) -> int:
        """Connections open now, free or not."""
        return len(self._all)

    def drop(self, origin: Origin) -> None:
        """Close the free connections to a worker; requests under way go on."""
        for connection in self._free.pop(origin, ()):
            connection.close()

    async def close(self) -> None:
        """Close everything. Requests under way fail."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._free.clear()
        for connection in tuple(self._all):
            connection.close()
        await asyncio.sleep(0)  # the transports tell their protocols

    def _take(self, origin: Origin) -> UpstreamConnection | None:
        free = self._free.get(origin)
        oldest = self._clock() - self._free_s
        while free:
            connection = free.pop()
            if connection.usable and connection.free_since >= oldest:
                return connection
            connection.close()
        return None

    async def _connect(self, origin: Origin) -> UpstreamConnection:
        def made() -> UpstreamConnection:
            return UpstreamConnection(
                timeouts=self._timeouts,
                clock=self._clock,
                freed=lambda connection: self._put_back(origin, connection),
                gone=lambda connection: self._forget(origin, connection),
            )

        limit = self._timeouts.connect_s
        tls = self._tls_context() if origin.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit):
                _, connection = await loop.create_connection(
                    made, origin.host, origin.port, ssl=tls
                )
        except TimeoutError:
            message = f"no connection to the worker in {limit:g} s"
            raise ConnectFailed(message, timed_out=True) from None
        except (OSError, UnicodeError) as error:
            raise ConnectFailed("no connection to the worker") from error
        self._all.add(connection)
        self._start_timer()
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _put_back(self, origin: Origin, connection: UpstreamConnection) -> None:
        free = self._free.setdefault(origin, deque())
        connection.free_since = self._clock()
        free.append(connection)
        if len(free) > FREE_LIMIT:
            free.popleft().close()

    def _forget(self, origin: Origin, connection: UpstreamConnection) -> None:
        self._all.discard(connection)
        free = self._free.get(origin)
        if free is not None and connection in free:
            free.remove(connection)

    def _start_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        """The one timer of all connections: silence, and age of free ones."""
        self._timer = None
        now = self._clock()
        for connection in tuple(self._all):
            connection.check(now)
        for origin, free in tuple(self._free.items()):
            while free and free[0].free_since < now - self._free_s:
                free.popleft().close()
            if not free:
                del self._free[origin]
        if self._all:
            self._start_timer()


def _head(origin: Origin, request: UpstreamRequest) -> bytes:
    headers = [(b"Host", origin.authority), *request.headers]
    if not isinstance(request.body, bytes):
        if request.length is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        else:
            headers.append((b"Content-Length", b"%d" % request.length))
    elif request.body or request.method in _METHODS_WITH_BODY:
        headers.append((b"Content-Length", b"%d" % len(request.body)))
    target = origin.path + request.target
    if not target.startswith(b"/") or b" " in target:
        raise BadRequest("the request's target is not a path")
    line = b"%b %b HTTP/1.1" % (request.method.encode(), target)
    try:
        return serialize(line, headers)
    except ValueError as error:
        raise BadRequest(f"the request cannot be passed on: {error}") from None


def _start(exchange: Exchange, head: bytes, request: UpstreamRequest) -> None:
    if isinstance(request.body, bytes):
        exchange.send(head, request.body)
    else:
        exchange.stream(head, request.body, chunked=request.length is None)
