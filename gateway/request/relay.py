"""Relay a worker's answer to the client, as it comes, at the client's pace.

Server-sent events are relayed whole; everything else in the pieces it came in. A
worker that dies ends an event stream with one error event, the worker's own if that
was the last that came (and no fake ``[DONE]``); any other body is cut, so that the
client notices.

A worker that closes after a ``data: [DONE]`` event, or what ends a stream of another
API, but without the end of the body, has said everything: that stream ends well. So
does one whose end is that of the connection, unless it breaks off within an event.
"""

import asyncio
from typing import Protocol

from aiohttp import web

from gateway.access.paths import asked_path
from gateway.errors import ClientGone, GatewayError, GoingAway, UpstreamReset
from gateway.request.client import ClientWriter, RelayedResponse
from gateway.request.headers import RawHeaders, first, target
from gateway.request.sse import WholeEvents, has_data
from gateway.upstreams.upstream_response import UpstreamResponse

STALL_S = 300.0
"""A client that takes nothing for this long is given up."""

LOOK_S = 0.5
"""How often a waiting relay looks whether its client is still there."""

_NO_CONTENT = 204


class ResponseObserver(Protocol):
    """Sees what is relayed. Must be quick, and must not raise."""

    def head(self, status: int, headers: RawHeaders) -> None:
        """Before anything is relayed."""

    def first_byte(self) -> None:
        """Once: the first body; of an event stream, its first event with data."""

    def data(self, data: bytes) -> None:
        """Body as it is relayed; of an event stream, whole events."""

    def ended(self, error: GatewayError | None) -> None:
        """Once: nothing more comes, after the whole answer or because of `error`."""


async def relay(
    request: web.Request,
    response: UpstreamResponse,
    *,
    request_id: bytes,
    observer: ResponseObserver,
    stall_s: float = STALL_S,
    extra: RawHeaders = (),
) -> RelayedResponse:
    """Relay `response` to its end; the result goes back to aiohttp.

    `extra` headers are added to the worker's.

    Its `error` tells how it ended. Raises what ended the answer before any of it could
    be written: another answer can still be given, unless events have come, which may
    be all there were. Cancelled, it closes the worker's connection; it returns even so
    where it is the gateway that ends, and raises where the client has left.
    """
    if response.error is not None and not _has_events(response):
        raise response.error
    observer.head(response.status, response.headers)
    passage: _Passage | None = None
    try:
        passage = _Passage(
            request, response, request_id=request_id, observer=observer, extra=extra
        )
        await passage.run(stall_s)
    except asyncio.CancelledError:
        if passage is None or not passage.told_of_the_end():
            raise
    finally:
        response.abort()
        await response.settled()
    if passage.incomplete:
        passage.client.cut()
    return passage.client.response


class _Passage:
    """The sink of one answer: frames events, tells the observer, writes, waits."""

    __slots__ = (
        "_began",
        "_events",
        "_observer",
        "_over",
        "_raw_path",
        "_response",
        "_wake",
        "client",
        "incomplete",
    )

    def __init__(
        self,
        request: web.Request,
        response: UpstreamResponse,
        *,
        request_id: bytes,
        observer: ResponseObserver,
        extra: RawHeaders,
    ) -> None:
        self.client = ClientWriter(
            request,
            status=response.status,
            reason=response.reason,
            headers=_headers_of(response),
            request_id=request_id,
            extra=extra,
        )
        self.incomplete = False
        """The client must be shown that its answer is not whole."""
        self._response = response
        self._observer = observer
        self._events = WholeEvents() if is_event_stream(response.headers) else None
        self._raw_path = request.raw_path
        self._began = False
        self._over = False
        self._wake = asyncio.Event()

    async def run(self, stall_s: float) -> None:
        """Relay until the end of the answer, one way or another."""
        self._response.attach(self)
        if not self._over:
            self.client.start()
            self.client.limit_buffer()
        while not self._over:
            await self._wake.wait()
            self._wake.clear()
            if not self._over:
                await self._wait_for_client(stall_s)

    # BodySink

    def data(self, pieces: list[bytes]) -> None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._events is not None:
            data = self._events.feed(data)
        if not data:
            return
        if not self._began:
            enough = self._pass(data)
        else:  # once for each event: without a further call
            self._observer.data(data)
            enough = self.client.body(data)
        if enough:
            self._hold()

    def end(self) -> None:
        events = self._events
        if events is not None:
            if events.broken_off and _ends_with_connection(self._response.headers):
                cut = "the worker closed the connection during its answer"
                self.failed(UpstreamReset(cut))
                return
            if rest := events.rest():
                self._pass(rest)
        self.client.end()
        self._finish(None)

    def failed(self, error: GatewayError) -> None:
        events = self._events
        if events is not None and self.client.open_ended:
            if events.done:
                self.end()
                return
            if not events.failed:  # else the worker has said so itself
                path = asked_path(target(self._raw_path))
                self.client.body(events.error_event(error, path))
            self.client.end()
        else:
            self.incomplete = True
        self._finish(error)

    def _hold(self) -> None:
        """Let the client take what waits for it, if it is still there."""
        if self.client.gone:
            self._give_up()
        else:
            self._response.pause()
            self._wake.set()

    def _pass(self, data: bytes) -> bool:
        """Pass it on; whether that is enough for now."""
        if not self._began and (self._events is None or has_data(data)):
            self._began = True
            self._observer.first_byte()
        self._observer.data(data)
        return self.client.body(data)

    def _finish(self, error: GatewayError | None) -> None:
        self.client.response.error = error
        self._over = True
        self._wake.set()
        # A client that closes from here on has had its answer.
        self._observer.ended(error)

    def told_of_the_end(self) -> bool:
        """It was cancelled: whether the client is there and knows now how this ended.

        If not, it has closed; with all that it waits for, where that was told.
        """
        if self.client.gone:
            if self._said_all and not self._over:
                self._finish(None)
            return False
        if not self._over:  # then it is the gateway that ends
            self.failed(GoingAway("the gateway is going away"))
        return True

    @property
    def _said_all(self) -> bool:
        """Whether what came ends with what clients close at."""
        return self._events is not None and (self._events.done or self._events.failed)

    def _give_up(self) -> None:
        self._response.abort()
        self.incomplete = True
        self._finish(None if self._said_all else ClientGone("the client left"))

    async def _wait_for_client(self, stall_s: float) -> None:
        """Until the client has taken enough, left, or taken nothing for too long."""
        drained = asyncio.ensure_future(self.client.drained())
        waiting, looks = self.client.waiting, 0.0
        try:
            while not drained.done() and not self._over:
                await asyncio.wait({drained}, timeout=LOOK_S)
                looks = looks + LOOK_S if self.client.waiting >= waiting else 0.0
                waiting = self.client.waiting
                if self.client.gone or looks > stall_s:
                    self._give_up()
        finally:
            drained.cancel()
        self._response.resume()


def is_event_stream(headers: RawHeaders) -> bool:
    """Whether an answer is server-sent events that can be read as they are."""
    kind = (first(headers, b"content-type") or b"").lower()
    coding = first(headers, b"content-encoding") or b"identity"
    return kind.startswith(b"text/event-stream") and coding.lower() == b"identity"


def _ends_with_connection(headers: RawHeaders) -> bool:
    """Whether nothing but the end of the connection tells the end of an answer."""
    framing = (b"content-length", b"transfer-encoding")
    return all(first(headers, name) is None for name in framing)


def _has_events(response: UpstreamResponse) -> bool:
    """Whether there is a stream to be relayed that an error event can end."""
    sized = first(response.headers, b"content-length") is not None
    return response.waits and not sized and is_event_stream(response.headers)


def _headers_of(response: UpstreamResponse) -> RawHeaders:
    """The worker's headers, for the client.

    The only one that is touched here is a length where there may be none (RFC 9110,
    8.6): some clients would wait for such a body.
    """
    if response.status != _NO_CONTENT:
        return response.headers
    return [pair for pair in response.headers if pair[0].lower() != b"content-length"]
