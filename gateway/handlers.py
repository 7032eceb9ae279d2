"""The routes whose requests go to workers. A handler is the list of steps of a request.

`/gateway/explain` is one of them: it takes the same steps, but sends nothing.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import msgspec
from aiohttp import web

from gateway import answers
from gateway.access.clients import client_name
from gateway.access.door import Access, Guards
from gateway.access.paths import asked_path, is_proxied
from gateway.admin.explain_page import ExplainPage
from gateway.errors import BadRequest, NotFound, Overloaded
from gateway.guard import Guard
from gateway.metrics.registry import Metrics
from gateway.request import body as bodies
from gateway.request.admission import Admission
from gateway.request.describe import (
    ENCODED_BODY,
    Described,
    Describer,
    kind_of,
)
from gateway.request.form import FORM, model_of
from gateway.request.headers import target
from gateway.request.integrity import is_encoded, is_signed
from gateway.request.outgoing import Outgoing
from gateway.request.peek import Peeked, peek
from gateway.request.prompt import Kind
from gateway.request.proxy import Proxy
from gateway.request.response_makers import ResponseMakers
from gateway.request.room import Room, Share
from gateway.request.session import session_of
from gateway.request.stored_responses import named_in
from gateway.settings.config import Config
from gateway.tokens.direct import DirectCalls
from gateway.tokens.front import TokensFront
from gateway.tracing.record import record_of
from router.request import RouteRequest

CHAT = "chat_completions"
COMPLETIONS = "completions"
RESPONSES = "responses"
OTHER = "other"
ROUTED: Mapping[str, Kind] = {
    CHAT: "chat",
    COMPLETIONS: "completion",
    RESPONSES: "responses",
}
"""How the body of each inference endpoint is rendered."""


class Handlers:
    """A handler for each of these routes; what they need is handed in once."""

    def __init__(
        self,
        *,
        config: Config,
        access: Access,
        describer: Describer,
        tokens: TokensFront,
        direct: DirectCalls,
        proxy: Proxy,
        explain_page: ExplainPage,
        metrics: Metrics,
        makers: ResponseMakers,
        admission: Admission,
        room: Room,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._access = access
        self._describer = describer
        self._tokens = tokens
        self._direct = direct
        self._proxy = proxy
        self._explain_page = explain_page
        self._metrics = metrics
        self._makers = makers
        self._admission = admission
        self._room = room
        self._clock = clock

    def add_to(self, guards: Guards) -> None:
        """Add the routes of clients; what is none of them is the last."""
        limited = guards.limited
        limited.add("POST", "/v1/chat/completions", self._chat, CHAT)
        limited.add("POST", "/v1/completions", self._completions, COMPLETIONS)
        # Its other methods, and what lies below it, are the worker's.
        limited.add("POST", "/v1/responses", self._responses, RESPONSES, alone=False)
        limited.add("*", r"/{path:[\s\S]*}", self._other, OTHER)
        limited.or_else(self._other, OTHER)

    def add_operators_routes_to(self, guard: Guard) -> None:
        """Add what tells where a request would go."""
        guard.add("POST", "/gateway/explain", self._explain, "explain")

    async def _chat(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        return await self._infer(request, identity, CHAT)

    async def _completions(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return await self._infer(request, identity, COMPLETIONS)

    async def _responses(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return await self._infer(request, identity, RESPONSES)

    async def _infer(
        self, request: web.Request, identity: bytes, endpoint: str
    ) -> web.StreamResponse:
        begun = self._clock()
        with self._room.share() as share:
            body = await self._read(request, share)
            body = await self._access.in_own_cache(request, body)
            described = await self._describe(request, body, ROUTED[endpoint], identity)
            outgoing = msgspec.structs.replace(
                _outgoing(request, identity, endpoint, body, len(body), begun),
                uncompared=described.uncompared,
                ids=described.ids,
                generation=described.generation,
                stored=endpoint == RESPONSES,
                share=share,
            )
            del body  # it need not be held for as long as its answer streams
            return await self._forward(request, outgoing, described.route)

    async def _read(self, request: web.Request, share: Share) -> bytes:
        with self._refusals():
            body = await bodies.read(request, self._config.max_body, share)
        record_of(request).read(body)
        return body

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Counts bodies for which there is no room."""
        try:
            yield
        except Overloaded:
            self._metrics.refused.labels("bodies").inc()
            raise

    async def _forward(
        self, request: web.Request, outgoing: Outgoing, route: RouteRequest
    ) -> web.StreamResponse:
        outgoing.record.described(route)
        if route.not_rendered is not None:
            self._metrics.not_rendered.labels(route.not_rendered).inc()
        with outgoing.record.step("admit"):
            await self._admission.admit(route, client_name(request))
        told = self._access.clients.told(request)
        return await self._proxy.forward(request, outgoing, route, told)

    async def _describe(
        self, request: web.Request, body: bytes, kind: Kind, identity: bytes
    ) -> Described:
        if is_encoded(request.raw_headers):
            # The worker's to read; it is not decompressed here.
            peeked = Peeked()
            route = self._describer.unrendered(len(body), peeked, ENCODED_BODY)
            route = self._tokens.unread(route)
            return Described(await self._addressed(request, peeked, route, identity))
        editable = not is_signed(request.raw_headers)
        peeked = await peek(body)
        with record_of(request).step("render"):
            described = await self._tokens.describe(
                body, peeked, kind, editable=editable, request_id=identity
            )
        route = await self._addressed(request, peeked, described.route, identity)
        return msgspec.structs.replace(described, route=route)

    async def _addressed(
        self, request: web.Request, peeked: Peeked, route: RouteRequest, identity: bytes
    ) -> RouteRequest:
        """The same request, with its session, to the worker that it has to go to."""
        session = session_of(request.raw_headers, peeked)
        route = msgspec.structs.replace(route, session=session)
        named = _named_response(request, peeked)
        if not named:
            return route
        headers = request.raw_headers
        return await self._makers.routed(route, named, headers, identity)

    async def _other(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        """Proxy an inference path as it is; what can tell its model is looked into."""
        path = asked_path(target(request.raw_path))
        if not is_proxied(path, self._config.proxy_path):
            raise NotFound("there is no such route here")
        with self._room.share() as share:
            outgoing, peeked = await self._outgoing_other(request, identity, share)
            seen = await self._direct.describe(path, outgoing, peeked)
            outgoing = msgspec.structs.replace(outgoing, uncompared=seen.uncompared)
            route = await self._addressed(request, peeked, seen.route, identity)
            del peeked  # it has parts of the body, which need not be held, either
            return await self._forward(request, outgoing, route)

    async def _outgoing_other(
        self, request: web.Request, identity: bytes, share: Share
    ) -> tuple[Outgoing, Peeked]:
        begun = self._clock()
        limit, length = self._config.max_body, bodies.length(request)
        if length != 0 and request.content_type == "application/json":
            body = await self._read(request, share)
            peeked = await peek(body)
            outgoing = _outgoing(request, identity, OTHER, body, len(body), begun)
        elif length != 0:
            bodies.refuse_announced(request, limit)  # before a worker hears of it
            model, stream = None, bodies.stream(request, limit)
            if request.content_type == FORM and self._describer.models_differ:
                with self._refusals():
                    form = request.headers["Content-Type"]
                    model, stream = await model_of(form, stream, share.take)
            peeked = Peeked(model=model)
            outgoing = _outgoing(request, identity, OTHER, stream, length, begun)
        else:
            peeked = Peeked()
            outgoing = _outgoing(request, identity, OTHER, b"", length, begun)
        return msgspec.structs.replace(outgoing, share=share), peeked

    async def _explain(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._access.operators.check_admin(request)
        body = await bodies.read(request, self._config.max_body)
        peeked = await peek(body)
        if peeked.problem is not None:
            raise BadRequest(f"the body cannot be explained: {peeked.problem}")
        kind = kind_of(peeked)
        if kind is None:
            raise BadRequest("the body has neither messages nor a prompt nor input")
        described = await self._describer.describe(body, peeked, kind, counted=False)
        named = _named_response(request, peeked)  # no worker is asked who made it
        route = msgspec.structs.replace(
            described.route,
            session=session_of(request.raw_headers, peeked),
            worker=self._makers.known(named),
        )
        page = self._explain_page.explain(route, described.rendered)
        return answers.json(page, identity)


def _named_response(request: web.Request, peeked: Peeked) -> bytes:
    """The id of the stored response that a request is about, or nothing."""
    previous = (peeked.previous_response_id or "").encode("utf-8", "replace")
    return named_in(target(request.raw_path)) or previous


def _outgoing(
    request: web.Request,
    identity: bytes,
    endpoint: str,
    body: bytes | AsyncIterator[bytes],
    length: int | None,
    begun: float,
) -> Outgoing:
    return Outgoing(
        method=request.method,
        target=target(request.raw_path),
        headers=request.raw_headers,
        request_id=identity,
        body=body,
        length=length,
        endpoint=endpoint,
        begun=begun,
        record=record_of(request),
    )
