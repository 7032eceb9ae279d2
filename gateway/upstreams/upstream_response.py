"""An answer of a worker while it comes: its head, then its body, pushed or pulled.

The body is pushed into one `BodySink` (the relay), read by read, as that is what
costs least; `read` and iteration are made of the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from gateway.errors import GatewayError, UpstreamFailed
from gateway.request.headers import RawHeaders
from router.request import Usage

EARLY_LIMIT = 256 * 1024
"""Bytes of body kept before a sink is attached; then the connection is paused."""


class BodySink(Protocol):
    """Takes a body: `data` per read, then exactly one of `end` and `failed`."""

    def data(self, pieces: list[bytes]) -> None:
        """What one read brought; `pieces` is not empty."""

    def end(self) -> None:
        """The body is complete."""

    def failed(self, error: GatewayError) -> None:
        """The body is not complete and never will be."""


class Flow(Protocol):
    """What an answer needs of the connection it comes by."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read on."""

    def abort(self) -> None:
        """End the exchange and the connection."""

    async def settled(self) -> None:
        """Return once nothing reads the request's body any more."""


class UpstreamResponse:
    """One answer. Whoever got it must read it to its end or `abort` it.

    `status`, `reason` and `headers` (as the worker wrote them, hop-by-hop ones too)
    are final. `ended` is True after the last piece, `error` holds what ended it
    before.
    """

    __slots__ = (
        "_early",
        "_early_size",
        "_flow",
        "_sink",
        "ended",
        "error",
        "headers",
        "push",
        "reason",
        "status",
        "usage",
    )

    def __init__(
        self, *, status: int, reason: bytes, headers: RawHeaders, flow: Flow
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.ended = False
        self.error: GatewayError | None = None
        self.usage: Usage | None = None
        """What the worker told of it besides the body."""
        self._flow = flow
        self._sink: BodySink | None = None
        self._early: list[bytes] = []
        self._early_size = 0
        self.push: Callable[[list[bytes]], None] = self._keep
        """Takes body that has come; called by the connection."""

    def attach(self, sink: BodySink) -> None:
        """Push the body into `sink`: at once what has come, then the rest."""
        self._sink = sink
        self.push = sink.data
        early, self._early = self._early, []
        if early:
            sink.data(early)
        if self._early_size > EARLY_LIMIT:
            self._flow.resume()
        if self.error is not None:
            sink.failed(self.error)
        elif self.ended:
            sink.end()
        if not self.open:
            self._detach()

    def pause(self) -> None:
        """Ask for no more for now. What is on its way may still be pushed."""
        if self.open:
            self._flow.pause()

    def resume(self) -> None:
        """Ask for more."""
        if self.open:
            self._flow.resume()

    def abort(self) -> None:
        """Drop the rest: the worker sees its connection closed. Idempotent."""
        if self.open:
            self.error = UpstreamFailed("given up by the gateway")
            self._detach()
            self._early.clear()
            self._flow.abort()

    async def settled(self) -> None:
        """Return once the request's streamed body is no longer read on its behalf."""
        await self._flow.settled()

    @property
    def open(self) -> bool:
        """There is more to come."""
        return not self.ended and self.error is None

    @property
    def waits(self) -> bool:
        """There is body that no sink has taken yet."""
        return bool(self._early)

    async def read(self, max_bytes: int) -> bytes:
        """The whole body. Raises UpstreamFailed where it is longer than `max_bytes`."""
        body = bytearray()
        async for piece in self:
            body += piece
            if len(body) > max_bytes:
                self.abort()
                raise UpstreamFailed("the worker's answer is too large")
        return bytes(body)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The body, piece by piece; raises what ended it before its end."""
        puller = _Puller(self)
        self.attach(puller)
        try:
            while (piece := await puller.next()) is not None:
                yield piece
        finally:
            self.abort()

    # What the connection calls.

    def finish(self) -> None:
        """The body is complete."""
        self.ended = True
        if (sink := self._detach()) is not None:
            sink.end()

    def fail(self, error: GatewayError) -> None:
        """The body ends here, incomplete."""
        if self.open:
            self.error = error
            if (sink := self._detach()) is not None:
                sink.failed(error)

    def _detach(self) -> BodySink | None:
        """Nothing is pushed from here on; the sink is told by the caller.

        Both refer to each other: what is over must not wait for the collector.
        """
        sink, self._sink = self._sink, None
        self.push = _drop
        return sink

    def _keep(self, pieces: list[bytes]) -> None:
        """Body that came before there is a sink."""
        self._early += pieces
        before = self._early_size
        self._early_size += sum(map(len, pieces))
        if before <= EARLY_LIMIT < self._early_size:
            self._flow.pause()


def _drop(pieces: list[bytes]) -> None:
    """Body that nobody wants any more."""


class _Puller:
    """A sink that is pulled from; holds at most about one read."""

    def __init__(self, response: UpstreamResponse) -> None:
        self._response = response
        self._pieces: list[bytes] = []
        self._more = asyncio.Event()
        self._closed = False

    def data(self, pieces: list[bytes]) -> None:
        self._pieces += pieces
        self._response.pause()
        self._more.set()

    def end(self) -> None:
        self._closed = True
        self._more.set()

    def failed(self, error: GatewayError) -> None:
        self._closed = True
        self._more.set()

    async def next(self) -> bytes | None:
        """What has come, or None at the end; raises what ended the body."""
        while not self._pieces and not self._closed:
            self._more.clear()
            self._response.resume()
            await self._more.wait()
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            return b"".join(pieces)
        if self._response.error is not None:
            raise self._response.error
        return None
