"""The body of a client's request: read it whole or as a stream, within its limit.

The bytes are those of the wire: nothing is decompressed (`server.make_runner` turns
that off) and nothing re-encoded. ``100 Continue`` is sent when the body is wanted,
so that a body that is too large is refused before it is sent; routes need
`leave_expect` as their ``expect_handler``. What a body says is read by `peek.py`;
edits of it belong between the two and the sending.
"""

import asyncio
import io
from collections.abc import AsyncIterator

from aiohttp import StreamReader, web

from gateway.errors import BadFraming, BodyTooLarge, ClientGone, ExpectationFailed
from gateway.request.room import Share
from gateway.server import ClientConnection

STALL_S = 60.0
"""Seconds a client may send nothing in the middle of its body."""

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def leave_expect(request: web.Request) -> None:
    """An ``expect_handler`` that leaves the answer to `read` and `stream`."""


async def read(
    request: web.Request, max_bytes: int, share: Share | None = None
) -> bytes:
    """The whole body, as it came; held in `share`, if it is to be.

    Raises Overloaded where there is no room for it, BodyTooLarge above `max_bytes` (by
    its announced length before anything is read), BadFraming where it is cut short or
    badly framed, ExpectationFailed.
    """
    if request.content.is_eof():  # it came with its head, as small bodies do
        _begin(request, max_bytes)
        body = request.content.read_nowait()
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
        if share is not None:
            share.take(len(body))
        return body
    body_so_far = io.BytesIO()  # joining 100 MB at the end would hold the event loop
    async for piece in stream(request, max_bytes):
        if share is not None:
            share.take(len(piece))
        body_so_far.write(piece)
    return body_so_far.getvalue()


async def stream(request: web.Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body in pieces as they come, read no faster than they are taken.

    Raises as `read`, and ClientGone where the client left meanwhile.
    """
    _begin(request, max_bytes)
    if not request.body_exists:
        return
    connection = request.protocol
    if isinstance(connection, ClientConnection):
        connection.body = request.content
    try:
        size = 0
        while piece := await _next(request.content):
            size += len(piece)
            if size > max_bytes:
                raise _too_large(max_bytes)
            yield piece
    finally:
        if isinstance(connection, ClientConnection) and (
            connection.body is request.content
        ):
            connection.body = None


def length(request: web.Request) -> int | None:
    """The announced length of the body; None where it is chunked. 0: no body."""
    if not request.body_exists:
        return 0
    return request.content_length


async def _next(content: StreamReader) -> bytes:
    try:
        if content.is_eof():  # all of it is here
            return await content.readany()
        async with asyncio.timeout(STALL_S):
            return await content.readany()
    except TimeoutError as error:
        raise BadFraming(f"nothing more of the body came in {STALL_S:g} s") from error
    except web.RequestPayloadError as error:
        raise BadFraming("the request's body is badly framed") from error
    except (ConnectionError, EOFError) as error:
        raise ClientGone("the client left before its body was complete") from error


def _begin(request: web.Request, max_bytes: int) -> None:
    """Refuse what is announced too large, or ask for what is expected to be asked."""
    refuse_announced(request, max_bytes)
    if request.body_exists:
        _send_continue(request)


def refuse_announced(request: web.Request, max_bytes: int) -> None:
    """Raise BodyTooLarge where the announced length is above `max_bytes`."""
    announced = request.content_length
    if announced is not None and announced > max_bytes:
        raise _too_large(max_bytes)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request's body is larger than {max_bytes} bytes")


def _send_continue(request: web.Request) -> None:
    expectation = request.headers.get("Expect")
    if expectation is None or request.version < (1, 1):
        return
    if expectation.lower() != "100-continue":
        raise ExpectationFailed("the only expectation that can be met is 100-continue")
    if request.transport is not None:
        request.transport.write(_CONTINUE)
