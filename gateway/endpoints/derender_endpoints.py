"""A chat's stream derendered in one pass: the engine's events in, OpenAI's out.

The request's body is the engine's stream of server-sent events, as it comes. What the
answer is to be stands in a first event without `choices`, in the fields of a derender
body: `model`, `chat_request`, `prompt_token_ids`, `prompt_tokens`. Without it, the
stream is derendered as plain text. Whole answers and vLLM's form, a request for each
chunk, go the way of the render endpoints (`render_endpoints.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Protocol, TypeVar

import msgspec
from aiohttp import web

from gateway import answers
from gateway.errors import ClientGone, GatewayError, RenderBusy, RenderTimeout
from gateway.request import body as bodies
from gateway.request.sse import WholeEvents, data_of, error_event, event
from gateway.threads import Late, QueueFull, Threads
from render import RenderRefused, RenderService
from render.body import Json
from render.derender_request import read_generated
from render.derender_stream import ChatStream
from render.refused import Dialect
from render.request import read_request

MiB = 1024 * 1024
LONGEST_STREAM = 1024 * MiB
LONGEST_EVENT = 16 * MiB
AT_ONCE = 32 * 1024  # bytes of events that are derendered on the event loop
KEPT_AT_ONCE = 2048  # ids of an unfinished call that are read there, once it is whole
DONE = b"[DONE]"


T = TypeVar("T")


class InThread(Protocol):
    """Runs work in a thread."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """What it returns or raises."""
        ...


class Services(Protocol):
    """Which service answers a request."""

    async def find(self, body: bytes) -> RenderService:
        """The service of a body's model; raises RenderRefused."""
        ...


class DerenderStreams:
    """Answers `POST /v1/chat/completions/derender/stream`.

    A few events are derendered where they come, many at once in a thread.
    """

    def __init__(
        self, services: Services, *, dialect: Dialect, threads: Threads
    ) -> None:
        self._services = services
        self._dialect = dialect
        self._threads = threads

    async def handle(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        """The answer; an error before the first event of it is a status."""
        opened = _Opened(self._services, self._in_thread)
        answer, out = _Answer(request, identity), b""
        try:
            async for events in _whole(bodies.stream(request, LONGEST_STREAM)):
                out = await self._derendered(opened, events)
                opened.check()
                await answer.send(out)
                out = b""
            return await answer.end(await self._ended(opened))
        except RenderRefused as refused:
            error = refused.body(self._dialect)
            if not (answer.begun or out):
                return answers.json(error, identity, refused.status)
            said = event(msgspec.json.encode(error)) + event(DONE)
        except GatewayError as error:
            if isinstance(error, ClientGone) or not answer.begun:
                raise
            said = error_event(error)
        return await answer.end(out + said)

    async def _derendered(self, opened: "_Opened", events: bytes) -> bytes:
        data = [*data_of(events)]
        await opened.open(data)
        if len(events) <= AT_ONCE and opened.kept <= KEPT_AT_ONCE:
            return opened.feed(data)
        return await self._in_thread(lambda: opened.feed(data))

    async def _ended(self, opened: "_Opened") -> bytes:
        if opened.kept <= KEPT_AT_ONCE:
            return opened.end()
        return await self._in_thread(opened.end)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(work)
        except QueueFull:
            raise RenderBusy("too many requests wait to be rendered") from None
        except Late:
            raise RenderTimeout("a chunk was not derendered in time") from None


class _Answer:
    """The client's stream; it begins with the first that there is to send."""

    def __init__(self, request: web.Request, identity: bytes) -> None:
        self._request = request
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Request-ID": identity.decode("ascii"),
            }
        )

    @property
    def begun(self) -> bool:
        """Whether the head is sent: no status can be told any more."""
        return self._response.prepared

    async def send(self, events: bytes) -> None:
        """Send on; raises ClientGone where the client left, or takes nothing."""
        if not events:
            return
        try:
            async with asyncio.timeout(bodies.STALL_S):
                if not self.begun:
                    await self._response.prepare(self._request)
                await self._response.write(events)
        except (TimeoutError, ConnectionError) as error:
            raise ClientGone("the client takes nothing of its answer") from error

    async def end(self, events: bytes) -> web.StreamResponse:
        """Send the last events, at least one."""
        await self.send(events)
        return self._response


class _Opened:
    """One stream: what opens it, then its chunks."""

    def __init__(self, services: Services, in_thread: InThread) -> None:
        self._services = services
        self._in_thread = in_thread
        self._stream: ChatStream | None = None
        self._done = False
        self._failure: RenderRefused | None = None

    @property
    def kept(self) -> int:
        """Ids that are kept back until a call is whole."""
        return self._stream.kept if self._stream is not None else 0

    def check(self) -> None:
        """Raises RenderRefused, if an event was refused."""
        if self._failure is not None:
            raise self._failure

    async def open(self, data: list[bytes]) -> None:
        """Find who derenders, with the first event; it is taken if it says so."""
        self._done = self._done or data[:1] == [DONE]
        if self._stream is not None or self._done or not data:
            return
        first = read_request(data[0])
        opening = {} if "choices" in first or "error" in first else first
        if opening:
            del data[0]
        service = await self._services.find(msgspec.json.encode(opening))
        # The first one of a model reads its files.
        self._stream = await self._in_thread(lambda: service.derender_stream(opening))

    def feed(self, data: list[bytes]) -> bytes:
        """The events to answer these with, up to one that is refused."""
        out = bytearray()
        try:
            for events in self._events(data):
                out += events
        except RenderRefused as refused:
            self._failure = refused
        return bytes(out)

    def end(self) -> bytes:
        """The last events."""
        last = self._stream.end() if self._stream is not None else []
        return _events(last) + event(DONE)

    def _events(self, data: list[bytes]) -> Iterator[bytes]:
        for one in data:
            if self._done or self._stream is None:
                return
            if one == DONE:
                self._done = True
                return
            chunk = read_request(one)
            if "error" in chunk:
                yield event(one)
                continue
            generated = read_generated(chunk, "generate_chunk", stream=True)
            yield _events(self._stream.feed(generated))


async def _whole(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole events of a body, as many as have come."""
    holder = WholeEvents(max_held=LONGEST_EVENT)
    async for piece in body:
        events = holder.feed(piece)
        if holder.inside:
            raise RenderRefused(f"an event is longer than {LONGEST_EVENT} bytes")
        if events:
            yield events
    rest = holder.rest()
    if rest.strip():
        yield rest


def _events(chunks: list[Json]) -> bytes:
    return b"".join(event(msgspec.json.encode(chunk)) for chunk in chunks)
