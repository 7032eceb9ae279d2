"""The render endpoints over HTTP: read, check, render in a thread, answer.

What is rendered and refused, and in whose words, is the render room's
(`render/service.py`). They are the same on the front door and on the render server,
which differ in how they find the service of a request's model.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway import answers
from gateway.endpoints.derender_endpoints import DerenderStreams, Services
from gateway.errors import RenderBusy, RenderTimeout
from gateway.guard import Guard, Handler
from gateway.metrics.registry import ServerMetrics
from gateway.request import body as bodies
from gateway.request.headers import sent_request_id
from gateway.settings.config import Config
from gateway.settings.shared_config import SharedConfig
from gateway.threads import Late, QueueFull, Threads
from gateway.tracing.record import record_of
from render import RenderRefused, RenderService
from render.refused import Dialect

DEADLINE_S = 30.0
"""Seconds that a rendering may take, waiting included."""

Call = Callable[[RenderService, bytes], object]
"""An endpoint of a model's service, ready for a body."""
Prepare = Callable[[web.Request], Call]

RENDER_ROUTES: Mapping[str, tuple[str, Callable[..., object]]] = {
    "/v1/chat/completions/render": ("chat_render", RenderService.chat),
    "/v1/completions/render": ("completions_render", RenderService.completions),
    "/v1/responses/render": ("responses_render", RenderService.responses),
}
"""Path -> (label in the metrics, what answers it)."""

DERENDER_ROUTES: Mapping[str, tuple[str, Call]] = {
    "/v1/chat/completions/derender": ("chat_derender", RenderService.derender_chat),
    "/v1/completions/derender": (
        "completions_derender",
        RenderService.derender_completions,
    ),
}
STREAM_ROUTE = ("/v1/chat/completions/derender/stream", "chat_derender_stream")

TOKENIZER_ROUTES: Mapping[str, tuple[str, Call]] = {
    "/tokenize": ("tokenize", RenderService.tokenize),
    "/detokenize": ("detokenize", RenderService.detokenize),
}

FLAGS = {"1": True, "true": True, "0": False, "false": False}


def endpoint_threads(config: SharedConfig) -> Threads:
    """The threads that render for these endpoints."""
    return Threads(
        threads=config.render_threads, queue=config.render_queue, deadline=DEADLINE_S
    )


class RenderEndpoints:
    """The handlers of the render endpoints. Its `threads` render, within a deadline."""

    def __init__(
        self,
        services: Services,
        *,
        dialect: Dialect,
        threads: Threads,
        max_body: int,
        metrics: ServerMetrics,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._services = services
        self._dialect = dialect
        self._threads = threads
        self._max_body = max_body
        self._metrics = metrics
        self._clock = clock

    @classmethod
    def of_gateway(
        cls,
        config: Config,
        services: Services,
        threads: Threads,
        metrics: ServerMetrics,
    ) -> "RenderEndpoints":
        """Those of the front door."""
        return cls(
            services,
            dialect=config.render_dialect,
            threads=threads,
            # A larger body would hold up the event loop when it is decoded.
            max_body=min(config.max_render_bytes, config.max_body),
            metrics=metrics,
        )

    def add_render_routes(self, guard: Guard) -> None:
        """The routes that render what an inference route would be sent, and back."""
        for path, (endpoint, render) in RENDER_ROUTES.items():
            guard.add("POST", path, self._handler(_rendering(render)), endpoint)
        for path, (endpoint, call) in DERENDER_ROUTES.items():
            guard.add("POST", path, self._handler(_plain(call)), endpoint)
        streams = DerenderStreams(
            self._services, dialect=self._dialect, threads=self._threads
        )
        path, endpoint = STREAM_ROUTE
        guard.add("POST", path, streams.handle, endpoint)

    def add_tokenizer_routes(self, guard: Guard) -> None:
        """vLLM's routes of the tokenizer."""
        for path, (endpoint, call) in TOKENIZER_ROUTES.items():
            guard.add("POST", path, self._handler(_plain(call)), endpoint)

    def _handler(self, prepare: Prepare) -> Handler:
        async def handler(request: web.Request, identity: bytes) -> web.Response:
            try:
                answer = await self._answer(request, prepare)
            except RenderRefused as refused:
                error = refused.body(self._dialect)
                return answers.json(error, identity, refused.status)
            return answers.own(answer, identity)

        return handler

    async def _answer(self, request: web.Request, prepare: Prepare) -> bytes:
        if self._dialect != "trtllm":
            _check_media_type(request)
        call = prepare(request)
        body = await bodies.read(request, self._max_body)
        record = record_of(request)
        record.read(body)
        service = await self._services.find(body)
        begun = self._clock()
        try:
            with record.step("render"):
                return await self._threads.run(
                    lambda: msgspec.json.encode(call(service, body))
                )
        except QueueFull:
            raise RenderBusy("too many requests wait to be rendered") from None
        except Late:
            raise RenderTimeout(
                f"the request was not rendered within {DEADLINE_S:g} s"
            ) from None
        finally:
            self._metrics.render_seconds.observe(self._clock() - begun)


def _rendering(render: Callable[..., object]) -> Prepare:
    """A render endpoint: the client may name the request and ask for the text."""

    def prepare(request: web.Request) -> Call:
        sent = sent_request_id(request.raw_headers)
        options: dict[str, Any] = {
            "request_id": sent.decode("ascii") if sent is not None else None,
            "prompt_text": _flag(request, "prompt_text"),
        }
        return lambda service, body: render(service, body, **options)

    return prepare


def _plain(call: Call) -> Prepare:
    return lambda request: call


def _flag(request: web.Request, name: str) -> bool:
    """A query parameter that is on or off; without a value it is on."""
    given = request.query.get(name)
    if given is None:
        return False
    if given.lower() not in FLAGS | {"": True}:
        raise RenderRefused(f"{name} is neither 1 nor 0", param=name)
    return FLAGS.get(given.lower(), True)


def _check_media_type(request: web.Request) -> None:
    """Refuse what is not said to be JSON, in vLLM's words."""
    media_type, _, _ = request.headers.get("Content-Type", "").partition(";")
    if media_type.strip().lower() != "application/json":
        raise RenderRefused(
            "1 validation error:\n"
            "  Unsupported Media Type: Only 'application/json' is allowed",
            type="Bad Request",
        )
