"""One request to a worker and its answer, on one connection.

It sends the request, parses what comes, and sees to it that the exchange ends one
way or another: complete, failed, timed out, or given up.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from gateway.errors import (
    GatewayError,
    InternalError,
    MalformedAnswer,
    StaleConnection,
    UpstreamReset,
    UpstreamTimeout,
)
from gateway.upstreams.response_parser import ResponseParser
from gateway.upstreams.upstream_response import UpstreamResponse

log = logging.getLogger(__name__)

STALE_S = 0.1
"""A reused connection that ends within this time had been closed before."""

COPY_BELOW = 16 * 1024
"""Up to here one buffer made by a copy is cheaper than two."""

SLICE = 256 * 1024
"""Bytes of a large body handed to the transport at a time."""


PATIENCE = 10.0


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a worker may be silent, in seconds.

    `first_byte_s` runs from the end of the request to the first byte of the body (an
    answer's head may come long before its first token), or `PATIENCE` times what that
    is expected to take, if that is longer; `idle_s` between two reads
    of the body, and between two steps of sending a large request, for as long as the
    next piece of it is there: a worker that waits for the client is not silent.
    """

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What an exchange uses of its connection."""

    transport: asyncio.Transport
    writable: Callable[[], Awaitable[None]]
    """Returns once the transport takes more."""
    over: Callable[[bool], None]
    """Called once, at the end; True where the connection can be used again."""
    reused: bool


class Exchange:
    """Made for one request; `send` it, await `answered`, then the response goes on.

    It is the `Flow` of its response: what pauses, resumes and aborts it.
    """

    __slots__ = (
        "_active_at",
        "_awaits_client",
        "_began",
        "_clock",
        "_first_byte_s",
        "_has_body",
        "_head",
        "_heard",
        "_over",
        "_parser",
        "_paused",
        "_replayable",
        "_response",
        "_sent",
        "_timeouts",
        "_upload",
        "_wire",
    )

    def __init__(
        self,
        wire: Wire,
        *,
        timeouts: Timeouts,
        clock: Callable[[], float],
        answers_head: bool,
        expected_s: float = 0.0,
    ) -> None:
        self._wire = wire
        self._timeouts = timeouts
        self._first_byte_s = max(timeouts.first_byte_s, PATIENCE * expected_s)
        self._clock = clock
        self._parser = ResponseParser(answers_head=answers_head)
        self._head: asyncio.Future[UpstreamResponse] | None = (
            asyncio.get_running_loop().create_future()
        )
        self._response: UpstreamResponse | None = None
        self._upload: asyncio.Task[None] | None = None
        self._awaits_client = False  # the next piece of the request is the client's
        self._sent = False
        self._heard = False  # a byte of any answer
        self._has_body = False
        self._paused = False
        self._over = False
        self._replayable = True
        self._began = self._active_at = clock()

    def send(self, head: bytes, body: bytes) -> None:
        """Send a request whose body is there, a large one piece by piece."""
        if len(body) <= SLICE:
            if len(body) <= COPY_BELOW:
                self._wire.transport.write(head + body)
            else:
                self._wire.transport.writelines((head, body))
            self._sent = True
            return
        self._wire.transport.write(head)
        self._start_upload(_slices(body), chunked=False)

    def stream(self, head: bytes, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Send a request whose body is still coming, framed as `chunked` says."""
        self._replayable = False
        self._wire.transport.write(head)
        self._start_upload(body, chunked=chunked)

    async def answered(self) -> UpstreamResponse:
        """The answer, once its head has come; raises what prevented it. Call it once.

        Who has the answer has the exchange, which must not have it in turn: what is
        over would wait for the collector.
        """
        if self._head is None:
            raise RuntimeError("the answer was taken already")
        try:
            return await self._head
        finally:
            self._head = None

    async def settled(self) -> None:
        """Return once nothing reads the request's body any more."""
        if self._upload is not None:
            await asyncio.wait([self._upload])

    # Flow of the response.

    def pause(self) -> None:
        if not self._over and not self._paused:
            self._paused = True
            self._wire.transport.pause_reading()

    def resume(self) -> None:
        if not self._over and self._paused:
            self._paused = False
            self._active_at = self._clock()
            self._wire.transport.resume_reading()

    def abort(self) -> None:
        if not self._over:
            self._finish(reusable=False)

    # What the connection calls.

    def received(self, data: bytes) -> None:
        """Bytes of the answer."""
        if self._over:
            return
        self._heard = True
        pieces = self._parser.feed(data)
        if self._response is None and self._parser.head_complete:
            self._response = self._begin_response()
        if pieces and self._response is not None:
            self._has_body = True
            self._active_at = self._clock()
            self._response.push(pieces)
        if self._over:
            return
        if self._parser.malformed is not None:
            self.fail(MalformedAnswer(self._parser.malformed))
        elif self._parser.complete:
            self._complete()

    def lost(self) -> None:
        """The connection has ended; for an answer without a length that is its end."""
        if self._over:
            return
        self._parser.eof()
        if self._parser.complete:
            self._complete()
        else:
            self.fail(self._loss())

    def check(self, now: float) -> None:
        """Fail where the worker has been silent for too long."""
        if self._over or self._awaits_client or (self._paused and self._sent):
            return
        waits_for_body = self._sent and not self._has_body
        limit = self._first_byte_s if waits_for_body else self._timeouts.idle_s
        if now - self._active_at > limit:
            self.fail(UpstreamTimeout(f"the worker was silent for {limit:g} s"))

    def fail(self, error: GatewayError) -> None:
        """End the exchange with `error`, wherever it stands."""
        if self._over:
            return
        response = self._finish(reusable=False)
        if response is not None:
            response.fail(error)
        elif self._head is not None and not self._head.done():
            self._head.set_exception(error)

    def _begin_response(self) -> UpstreamResponse:
        response = UpstreamResponse(
            status=self._parser.status,
            reason=self._parser.reason,
            headers=self._parser.headers,
            flow=self,
        )
        if self._head is not None and not self._head.done():
            self._head.set_result(response)
        return response

    def _complete(self) -> None:
        response = self._finish(reusable=self._parser.keep_alive and self._sent)
        if response is not None:
            response.finish()

    def _finish(self, *, reusable: bool) -> UpstreamResponse | None:
        """Let go of all that is held; the response, which the caller tells."""
        self._over = True
        self._parser.release()
        response, self._response = self._response, None
        if self._upload is not None:
            self._upload.cancel()
        if self._paused and reusable:
            self._wire.transport.resume_reading()
        self._wire.over(reusable)
        return response

    def _loss(self) -> GatewayError:
        early = not self._heard and self._clock() - self._began < STALE_S
        if self._wire.reused and early:
            return StaleConnection(
                "the worker closed the connection", retryable=self._replayable
            )
        what = "during" if self._response is not None else "before"
        return UpstreamReset(f"the worker closed the connection {what} its answer")

    def _start_upload(self, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        self._upload = asyncio.create_task(self._send_body(body, chunked=chunked))

    async def _send_body(self, body: AsyncIterator[bytes], *, chunked: bool) -> None:
        try:
            self._turn(client=True)
            async for piece in body:
                self._turn(client=False)
                if piece and chunked:
                    piece = b"%x\r\n%b\r\n" % (len(piece), piece)
                await asyncio.sleep(0)  # an answer is read before the rest is written
                self._write(piece)
                await self._wire.writable()
                self._turn(client=True)
            self._turn(client=False)
            if chunked:
                self._write(b"0\r\n\r\n")
            self._sent = True
        except GatewayError as error:
            self.fail(error)
        except Exception:
            log.exception("sending a request body failed")
            self.fail(InternalError("the request could not be sent"))

    def _turn(self, *, client: bool) -> None:
        """From now on it is the client that is waited for, or the worker."""
        self._awaits_client = client
        self._active_at = self._clock()

    def _write(self, data: bytes) -> None:
        if data and not self._wire.transport.is_closing():
            self._wire.transport.write(data)


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), SLICE):
        # A view spares a copy; the transport takes it as well as bytes.
        yield view[start : start + SLICE]  # type: ignore[misc]
