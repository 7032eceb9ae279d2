"""One request's prompts on their way to one worker's generate route.

Each prompt is a request of its own there; the first one's answer decides what the
client's is. Nothing is read here of what comes back.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from secrets import token_hex

import msgspec

from gateway.errors import GatewayError, MalformedAnswer, StaleConnection
from gateway.request.headers import RawHeaders, first
from gateway.tokens.generation import Generation
from gateway.tokens.heads import beside_another_body, without
from gateway.upstreams.origin import Origin
from gateway.upstreams.upstream import UpstreamRequest, Upstreams
from gateway.upstreams.upstream_response import UpstreamResponse
from render.body import Json

log = logging.getLogger(__name__)

GENERATE = b"/inference/v1/generate"
ABORT = b"/inference/v1/abort_requests"
ID_PREFIX = "generate-tokens-"
"""Before the id of a request, inside the engine."""
ABORT_S = 5.0
SESSION = b"X-Session-ID"
GOOD_SESSION = re.compile(r"[\x21-\x7e]{1,256}")
OK, REFUSALS = 200, 400
EVENTS = b"text/event-stream"


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent for one client's request.

    `request` is the client's for this worker. `stream` and `stops` are what is asked of
    the engine. Several requests may have the client's `request_id` at a time: to the
    engine it has a `name` of its own, as an abort goes by that.
    """

    upstreams: Upstreams
    origin: Origin
    request: UpstreamRequest
    generation: Generation
    request_id: str
    name: str
    stream: bool
    stops: bool

    async def open(self, prompt: int) -> UpstreamResponse:
        """The head of the answer to a prompt; GatewayError where there is none.

        It is one that can be read here, or a refusal. One of several prompts stays at
        this worker: it is sent again here where its connection had been closed.
        """
        name = self._name(prompt)
        body = self.generation.body(
            prompt, request_id=name, stream=self.stream, stops=self.stops
        )
        several = len(self.generation.prompts) > 1
        response = await self._post(GENERATE, body, name, again=several)
        wrong = _unreadable(response, stream=self.stream)
        if wrong is not None:
            response.abort()
            raise MalformedAnswer(f"the worker's answer is {wrong}")
        return response

    async def abort(self, prompts: Iterable[int]) -> None:
        """Tell the engine that nobody waits any more: a proxy may hold its end open."""
        names = [ID_PREFIX + self._name(prompt) for prompt in prompts]
        body = msgspec.json.encode({"request_ids": names})
        try:
            async with asyncio.timeout(ABORT_S):
                response = await self._post(ABORT, body, self.request_id, again=True)
                await response.read(1024)
        except (GatewayError, TimeoutError) as error:
            log.debug("worker %s: not told of an abort: %s", self.origin, error)

    def _name(self, prompt: int) -> str:
        alone = len(self.generation.prompts) == 1
        return self.name if alone else f"{self.name}-{prompt}"

    async def _post(
        self, target: bytes, body: bytes, name: str, *, again: bool
    ) -> UpstreamResponse:
        """The answer; once more after a stale connection, if `again`."""
        request = msgspec.structs.replace(
            self.request,
            target=target,
            headers=_headers(self.request.headers, name, self.generation.asked),
            body=body,
            length=len(body),
        )
        try:
            return await self.upstreams.send(self.origin, request)
        except StaleConnection:
            if not again:
                raise
        request = msgspec.structs.replace(request, fresh=True)
        return await self.upstreams.send(self.origin, request)


def own_name(request_id: str) -> str:
    """A name for a client's request that no other request has."""
    return f"{request_id}-{token_hex(8)}"


def _unreadable(response: UpstreamResponse, *, stream: bool) -> str | None:
    """What is wrong with the head of an answer; None: nothing, or it is a refusal."""
    if response.status != OK:
        return f"{response.status}" if response.status < REFUSALS else None
    coding = first(response.headers, b"content-encoding") or b"identity"
    if coding.lower() != b"identity":
        return "encoded"  # nothing was said to be accepted
    kind = (first(response.headers, b"content-type") or b"").lower()
    return "no stream" if stream and not kind.startswith(EVENTS) else None


class Aborts:
    """Aborts that are on their way; nobody waits for them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def tell(self, asking: Asking, prompt: int | None = None) -> None:
        """Have an engine told that a prompt is aborted; None: all of them."""
        every = range(len(asking.generation.prompts))
        prompts = every if prompt is None else (prompt,)
        task = asyncio.get_running_loop().create_task(asking.abort(prompts))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """End what is on its way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _headers(headers: RawHeaders, name: str, asked: Json) -> RawHeaders:
    """The client's, but for what is about its body; the id is that of the prompt.

    A session in the body has no place in a GenerateRequest: it goes here.
    """
    kept = without(beside_another_body(headers), {b"x-request-id"})
    session = asked.get("session_id")
    named = first(headers, SESSION.lower()) is not None
    if isinstance(session, str) and not named and GOOD_SESSION.fullmatch(session):
        kept = [*kept, (SESSION, session.encode())]
    return [
        *kept,
        (b"Content-Type", b"application/json"),
        (b"X-Request-ID", name.encode()),
    ]
