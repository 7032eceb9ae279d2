"""The routes of the front door. A handler is the list of steps of its request."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from aiohttp import web

from gateway import body as bodies
from gateway.access import asked_path, check_admin, is_proxied
from gateway.admin import Admin
from gateway.client import cut
from gateway.config import Config
from gateway.describe import ENCODED_BODY, OTHER_ENDPOINT, Describer
from gateway.errors import (
    BadRequest,
    GatewayError,
    InternalError,
    MethodNotAllowed,
    NotFound,
)
from gateway.headers import request_id, target
from gateway.metrics import CONTENT_TYPE, Metrics
from gateway.peek import Peeked, peek
from gateway.proxy import Outgoing, Proxy
from gateway.server import check_framing
from router.request import RouteRequest

log = logging.getLogger(__name__)

Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
"""Takes the request and its id (`X-Request-ID`, the client's or a new one)."""
Guarded = Callable[[web.Request], Awaitable[web.StreamResponse]]

CHAT = "chat_completions"
COMPLETIONS = "completions"
OTHER = "other"


class Handlers:
    """Every route's handler; what they need is handed in once."""

    def __init__(
        self,
        *,
        config: Config,
        describer: Describer,
        proxy: Proxy,
        admin: Admin,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._describer = describer
        self._proxy = proxy
        self._admin = admin
        self._metrics = metrics
        self._clock = clock

    def add_to(self, app: web.Application) -> None:
        """Add every route."""
        post = {
            "/v1/chat/completions": (self._chat, CHAT),
            "/v1/completions": (self._completions, COMPLETIONS),
            "/gateway/explain": (self._explain, "explain"),
        }
        get = {
            "/v1/models": (self._models, "models"),
            "/health": (self._health, "health"),
            "/ready": (self._ready, "ready"),
            "/metrics": (self._exposition, "metrics"),
            "/gateway/workers": (self._workers, "workers"),
            "/gateway/index": (self._index, "index"),
        }
        routes = [("POST", path, *rest) for path, rest in post.items()]
        routes += [("GET", path, *rest) for path, rest in get.items()]
        for method, path, handler, endpoint in routes:
            self._add(app, method, path, handler, endpoint)
            if method == "GET":
                self._add(app, "HEAD", path, handler, endpoint)
            self._add(app, "*", path, _wrong_method(method), endpoint)
        self._add(app, "*", r"/{path:[\s\S]*}", self._other, OTHER)
        app.middlewares.append(_or_else(self._guarded(self._other, OTHER)))

    def _add(
        self, app: web.Application, method: str, path: str, handler: Handler, name: str
    ) -> None:
        app.router.add_route(
            method,
            path,
            self._guarded(handler, name),
            expect_handler=bodies.leave_expect,
        )

    def _guarded(self, handler: Handler, endpoint: str) -> Guarded:
        """Count and time a handler; every failure is an answer in OpenAI's shape."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            begun = self._clock()
            identity = request_id(request.raw_headers)
            try:
                response = await self._answer(handler, request, identity, endpoint)
            except asyncio.CancelledError:
                self._count(endpoint, "client_gone", begun)
                raise
            self._count(endpoint, str(response.status), begun)
            return response

        return guarded

    async def _answer(
        self, handler: Handler, request: web.Request, identity: bytes, endpoint: str
    ) -> web.StreamResponse:
        try:
            check_framing(request)
            return await handler(request, identity)
        except GatewayError as error:
            return _error_response(error, identity)
        except Exception:
            # A bug of ours: the client gets an answer, the operator the trace.
            log.exception("a request to %s failed", endpoint)
            self._metrics.errors.labels("handler").inc()
            if request.writer.output_size:
                return cut(request)
            failure = InternalError("the gateway failed; its log says why")
            return _error_response(failure, identity)

    def _count(self, endpoint: str, status: str, begun: float) -> None:
        self._metrics.requests.labels(endpoint, status).inc()
        took = self._clock() - begun
        self._metrics.request_seconds.labels(endpoint).observe(took)

    async def _chat(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        return await self._infer(request, identity, CHAT)

    async def _completions(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return await self._infer(request, identity, COMPLETIONS)

    async def _infer(
        self, request: web.Request, identity: bytes, endpoint: str
    ) -> web.StreamResponse:
        begun = self._clock()
        body = await bodies.read(request, self._config.max_body)
        route = await self._route(request, body, chat=endpoint == CHAT)
        outgoing = _outgoing(
            request, identity, endpoint, body, len(body), begun, route.prompts
        )
        return await self._forward(request, outgoing, route)

    async def _forward(
        self, request: web.Request, outgoing: Outgoing, route: RouteRequest
    ) -> web.StreamResponse:
        if route.not_rendered is not None:
            self._metrics.not_rendered.labels(route.not_rendered).inc()
        return await self._proxy.forward(request, outgoing, route)

    async def _route(
        self, request: web.Request, body: bytes, *, chat: bool
    ) -> RouteRequest:
        if "Content-Encoding" in request.headers:
            # The worker's to read; it is not decompressed here.
            return self._describer.unrendered(len(body), Peeked(), ENCODED_BODY)
        return await self._describer.describe(body, await peek(body), chat=chat)

    async def _other(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        """Proxy an inference path as it is; JSON is looked into, the rest streamed."""
        path = asked_path(target(request.raw_path))
        if not is_proxied(path, self._config.proxy_path):
            raise NotFound("there is no such route here")
        begun = self._clock()
        limit, length = self._config.max_body, bodies.length(request)
        if length != 0 and request.content_type == "application/json":
            body = await bodies.read(request, limit)
            peeked = await peek(body)
            outgoing = _outgoing(request, identity, OTHER, body, len(body), begun)
        else:
            peeked = Peeked()
            bodies.refuse_announced(request, limit)  # before a worker hears of it
            stream = bodies.stream(request, limit) if length != 0 else b""
            outgoing = _outgoing(request, identity, OTHER, stream, length, begun)
        route = self._describer.unrendered(outgoing.length or 0, peeked, OTHER_ENDPOINT)
        return await self._forward(request, outgoing, route)

    async def _models(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return _json(self._admin.models(), identity)

    async def _health(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return _json({"status": "ok"}, identity)

    async def _ready(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        if self._admin.ready():
            return _json({"status": "ready"}, identity)
        return _json({"status": "no worker has answered yet"}, identity, status=503)

    async def _exposition(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        return _own(await self._metrics.exposition(), identity, CONTENT_TYPE)

    async def _workers(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._check_admin(request)
        return _json(self._admin.workers(), identity)

    async def _index(self, request: web.Request, identity: bytes) -> web.StreamResponse:
        self._check_admin(request)
        return _json(self._admin.index(), identity)

    async def _explain(
        self, request: web.Request, identity: bytes
    ) -> web.StreamResponse:
        self._check_admin(request)
        body = await bodies.read(request, self._config.max_body)
        peeked = await peek(body)
        if peeked.problem is not None:
            raise BadRequest(f"the body cannot be explained: {peeked.problem}")
        if peeked.messages is None and peeked.prompt is None:
            raise BadRequest("the body has neither messages nor a prompt")
        route = await self._describer.describe(
            body, peeked, chat=peeked.messages is not None, counted=False
        )
        return _json(self._admin.explain(route), identity)

    def _check_admin(self, request: web.Request) -> None:
        peername = request.transport and request.transport.get_extra_info("peername")
        peer = peername[0] if isinstance(peername, tuple) else None
        authorization = request.headers.get("Authorization")
        check_admin(peer, authorization, self._config.admin_key)


def _outgoing(
    request: web.Request,
    identity: bytes,
    endpoint: str,
    body: bytes | AsyncIterator[bytes],
    length: int | None,
    begun: float,
    prompts: int = 1,
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
        prompts=prompts,
    )


def _or_else(other: Guarded) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Has `other` answer what aiohttp finds no route for (``*``, ``host:port``)."""

    @web.middleware
    async def answer(request: web.Request, handler: Guarded) -> web.StreamResponse:
        if request.match_info.http_exception is None:
            return await handler(request)
        return await other(request)

    return answer


def _wrong_method(allowed: str) -> Handler:
    async def refuse(request: web.Request, identity: bytes) -> web.StreamResponse:
        raise MethodNotAllowed(
            f"this route takes {allowed}", headers=[("Allow", allowed)]
        )

    return refuse


def _json(value: object, identity: bytes, status: int = 200) -> web.Response:
    return _own(msgspec.json.encode(value), identity, "application/json", status)


def _own(
    body: bytes, identity: bytes, content_type: str, status: int = 200
) -> web.Response:
    headers = {"Content-Type": content_type, "X-Request-ID": identity.decode("ascii")}
    return web.Response(body=body, status=status, headers=headers)


def _error_response(error: GatewayError, identity: bytes) -> web.Response:
    response = _own(error.body(), identity, "application/json", error.status)
    response.headers.extend(error.headers)
    if error.close:
        response.force_close()
    return response
