"""One connection to a worker, carrying one exchange at a time.

It only joins a transport to an exchange; which connection a request takes is the
business of `upstream.py`, what is said on it that of `exchange.py`.
"""

import asyncio
import os
from collections.abc import Callable
from typing import cast

from gateway.upstreams.exchange import Exchange, Timeouts, Wire

READ = 64 * 1024
"""Bytes read at a time of what a lost connection still has."""


class UpstreamConnection(asyncio.Protocol):
    """The protocol of one connection.

    `freed(connection)` is called when it can carry another exchange, `gone` once
    when it has ended.
    """

    __slots__ = (
        "_clock",
        "_exchange",
        "_exchanges",
        "_freed",
        "_gone",
        "_timeouts",
        "_transport",
        "_writable",
        "free_since",
    )

    def __init__(
        self,
        *,
        timeouts: Timeouts,
        clock: Callable[[], float],
        freed: Callable[["UpstreamConnection"], None],
        gone: Callable[["UpstreamConnection"], None],
    ) -> None:
        self.free_since = 0.0
        self._timeouts = timeouts
        self._clock = clock
        self._freed = freed
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._exchanges = 0
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def usable(self) -> bool:
        """Open, and carrying nothing."""
        transport = self._transport
        return (
            self._exchange is None
            and transport is not None
            and not transport.is_closing()
        )

    def begin(self, *, answers_head: bool, expected_s: float = 0.0) -> Exchange:
        """Start an exchange on a `usable` connection."""
        if self._transport is None or self._exchange is not None:
            raise RuntimeError("the connection is not usable")
        wire = Wire(
            transport=self._transport,
            writable=self._wait_writable,
            over=self._exchange_over,
            reused=self._exchanges > 0,
        )
        self._exchanges += 1
        self._exchange = Exchange(
            wire,
            timeouts=self._timeouts,
            clock=self._clock,
            answers_head=answers_head,
            expected_s=expected_s,
        )
        return self._exchange

    def check(self, now: float) -> None:
        """End an exchange whose worker has been silent for too long."""
        if self._exchange is not None:
            self._exchange.check(now)

    def close(self) -> None:
        """End the connection now, and its exchange with it."""
        if self._transport is not None:
            self._transport.abort()
        self._end_exchange()

    def _exchange_over(self, reusable: bool) -> None:
        self._exchange = None
        if reusable and self.usable:
            self._freed(self)
        elif self._transport is not None:
            self._transport.abort()

    def _read_rest(self) -> None:
        """Take what came before the connection was lost and was not read yet.

        A worker that answers early and closes has the rest of its request end in a
        reset. A write that meets it closes the transport at once, while the answer
        waits in the socket, which is open for as long as this is called. Of TLS that
        would be ciphertext.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("ssl_object") is not None:
            return
        sock = transport.get_extra_info("socket")
        try:
            while sock is not None and self._exchange is not None:
                data = os.read(sock.fileno(), READ)
                if not data:
                    return
                self._exchange.received(data)
        except OSError:
            return  # no more, or the reset itself

    async def _wait_writable(self) -> None:
        await self._writable.wait()

    def _end_exchange(self) -> None:
        self._writable.set()
        if self._exchange is not None:
            self._exchange.lost()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.received(data)
        elif self._transport is not None:  # nobody asked: it cannot be trusted again
            self._transport.abort()

    def eof_received(self) -> bool:
        if self._transport is not None:
            self._transport.abort()
        self._end_exchange()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            if isinstance(exc, OSError):
                self._read_rest()
        finally:
            self._transport = None
            self._end_exchange()
            self._gone(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
