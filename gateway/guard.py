"""What stands around every handler: counting, timing, and an answer to any failure."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from aiohttp import web

from gateway import answers
from gateway.access.paths import asked_path
from gateway.errors import GatewayError, GoingAway, InternalError, MethodNotAllowed
from gateway.metrics.registry import ServerMetrics
from gateway.request import body as bodies
from gateway.request.client import cut
from gateway.request.headers import request_id, target
from gateway.server import check_framing, is_time_over
from gateway.tracing.recorder import Recorder

log = logging.getLogger(__name__)

Handler = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
"""Takes the request and its id (`X-Request-ID`, the client's or a new one)."""
Guarded = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[web.Request], None]
"""Raises where a request may not pass."""
Early = Callable[[web.Request, bytes], web.StreamResponse | None]
"""Answers before check and handler, with the request's id; None: it is theirs."""
Inside = Callable[[web.Request], AbstractContextManager[None]]
"""Holds what a request takes up while it is answered; raises where that is too much."""


def nothing_held(request: web.Request) -> AbstractContextManager[None]:
    """What most requests take up."""
    return nullcontext()


class Guard:
    """Adds routes whose handlers may fail: every failure is an answer."""

    def __init__(
        self,
        app: web.Application,
        metrics: ServerMetrics,
        *,
        flat: bool = False,
        early: Early | None = None,
        check: Check | None = None,
        inside: Inside = nothing_held,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`flat` errors have TensorRT-LLM's shape; `early`, then `check`, come before
        handlers, which run `inside`.

        `recorder` keeps the records of requests; none are kept without it.
        """
        self._app = app
        self._flat = flat
        self._early = early
        self._check = check
        self._inside = inside
        self._metrics = metrics
        self._recorder = recorder or Recorder()
        self._clock = clock

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        endpoint: str,
        *,
        alone: bool = True,
    ) -> None:
        """A route that takes one method (GET: HEAD, too), or any ("*").

        `endpoint` is its label in the metrics. Other methods are refused, unless it is
        not `alone` and they may find a later route.
        """
        methods = ("GET", "HEAD") if method == "GET" else (method,)
        for name in methods:
            self._route(name, path, handler, endpoint)
        if alone and method != "*":
            self._route("*", path, _wrong_method(method), endpoint)

    def add_methods(
        self, path: str, handlers: Mapping[str, Handler], endpoint: str
    ) -> None:
        """A route with a handler for each method; any other method is refused."""
        for method, handler in handlers.items():
            self.add(method, path, handler, endpoint, alone=False)
        self._route("*", path, _wrong_method(", ".join(handlers)), endpoint)

    def or_else(self, fallback: Handler, endpoint: str) -> None:
        """Have it answer what aiohttp finds no route for (``*``, ``host:port``)."""
        guarded = self._guarded(fallback, endpoint)

        @web.middleware
        async def answer(request: web.Request, handler: Guarded) -> web.StreamResponse:
            if request.match_info.http_exception is None:
                return await handler(request)
            return await guarded(request)

        self._app.middlewares.append(answer)

    def _route(self, method: str, path: str, handler: Handler, endpoint: str) -> None:
        self._app.router.add_route(
            method,
            path,
            self._guarded(handler, endpoint),
            expect_handler=bodies.leave_expect,
        )

    def _guarded(self, handler: Handler, endpoint: str) -> Guarded:
        async def guarded(request: web.Request) -> web.StreamResponse:
            begun = self._clock()
            identity = request_id(request.raw_headers)
            record = self._recorder.open(request, identity, endpoint)
            try:
                response = await self._answer(handler, request, identity, endpoint)
            except asyncio.CancelledError:
                self._count(endpoint, "client_gone", begun)
                self._recorder.close(record, None)
                raise
            self._count(endpoint, str(response.status), begun)
            self._recorder.close(record, response.status)
            return response

        return guarded

    async def _answer(
        self, handler: Handler, request: web.Request, identity: bytes, endpoint: str
    ) -> web.StreamResponse:
        try:
            check_framing(request)
            if self._early is not None:
                answer = self._early(request, identity)
                if answer is not None:
                    return answer
            if self._check is not None:
                self._check(request)
            with self._inside(request):
                return await handler(request, identity)
        except asyncio.CancelledError as error:
            if not is_time_over(error) or request.writer.output_size:
                raise
            going = GoingAway("the gateway is going away")
            return self._refusal(request, going, identity)
        except GatewayError as error:
            if request.writer.output_size:
                return cut(request, error.status)
            return self._refusal(request, error, identity)
        except Exception:
            # A bug of ours: the client gets an answer, the operator the trace.
            log.exception("a request to %s failed", endpoint)
            self._metrics.errors.labels("handler").inc()
            if request.writer.output_size:
                return cut(request)
            failure = InternalError("the gateway failed; its log says why")
            return self._refusal(request, failure, identity)

    def _refusal(
        self, request: web.Request, error: GatewayError, identity: bytes
    ) -> web.Response:
        path = asked_path(target(request.raw_path))
        return answers.refusal(error, identity, flat=self._flat, path=path)

    def _count(self, endpoint: str, status: str, begun: float) -> None:
        self._metrics.requests.labels(endpoint, status).inc()
        took = self._clock() - begun
        self._metrics.request_seconds.labels(endpoint).observe(took)


def _wrong_method(allowed: str) -> Handler:
    async def refuse(request: web.Request, identity: bytes) -> web.StreamResponse:
        raise MethodNotAllowed(
            f"this route takes {allowed}", headers=[("Allow", allowed)]
        )

    return refuse
