"""The render server: one model's render endpoints, on a CPU and without workers."""

import asyncio

import msgspec
from aiohttp import web

from gateway import answers
from gateway.access.operators import check_api_key
from gateway.endpoints import server_info
from gateway.endpoints.render_endpoints import RenderEndpoints, endpoint_threads
from gateway.errors import ConfigError, NotFound
from gateway.guard import Guard, Handler
from gateway.loading import load_renderer
from gateway.metrics.encoder_counters import encoder_counters
from gateway.metrics.registry import CONTENT_TYPE, ServerMetrics
from gateway.proof.fingerprints import Fingerprints
from gateway.settings.render_config import RenderConfig
from gateway.settings.shared_config import DEFAULT_PROFILE
from gateway.tracing.recorder import Recorder
from render import ModelNotFound, RenderOptions, RenderService


class RenderServer:
    """Everything behind the render server's port. The model is loaded at once."""

    def __init__(self, config: RenderConfig) -> None:
        """Load the model; ConfigError where that fails."""
        self.config = config
        self.for_operators = None  # all is on one port
        self.metrics = ServerMetrics()
        self.recorder = Recorder.of(config, self.metrics)
        self.service = _load(config)
        renderer = self.service.renderer
        self.metrics.watch(encoder_counters(lambda: [renderer]))
        self.fingerprints = Fingerprints(
            config, loaded=lambda: [renderer], find=lambda _: renderer
        )
        self.leaving = False
        self._learning: asyncio.Task[None] | None = None
        self.threads = endpoint_threads(config)

    async def start(self) -> web.Application:
        """The application to serve."""
        await self.recorder.start()
        self._learning = asyncio.create_task(self.fingerprints.run())
        # Bodies have their own limit (request/body.py); aiohttp's would cut them first.
        app = web.Application(client_max_size=0)
        self._add_routes(app)
        return app

    def _add_routes(self, app: web.Application) -> None:
        flat = self.config.render_dialect == "trtllm"
        anyone = Guard(app, self.metrics, flat=flat)
        guard = Guard(
            app,
            self.metrics,
            flat=flat,
            check=self._check_key,
            recorder=self.recorder,
        )
        endpoints = RenderEndpoints(
            self,
            dialect=self.config.render_dialect,
            threads=self.threads,
            max_body=self.config.max_body,
            metrics=self.metrics,
        )
        anyone.add("GET", "/health", _saying({"status": "ok"}), "health")
        anyone.add("GET", "/ready", self._ready, "ready")
        endpoints.add_render_routes(guard)
        endpoints.add_tokenizer_routes(guard)
        guard.add("GET", "/v1/models", _saying(self.service.models()), "models")
        guard.add("GET", r"/v1/models/{name:[\s\S]+}", self._model, "models")
        guard.add("GET", "/server_info", self._server_info, "server_info")
        guard.add("GET", "/metrics", self._exposition, "metrics")
        guard.add("*", r"/{path:[\s\S]*}", _nothing, "other")
        guard.or_else(_nothing, "other")

    def leave(self) -> None:
        """It will stop: nothing more should be sent here."""
        self.leaving = True

    async def stop(self) -> None:
        """Stop rendering; what is being rendered is left to end by itself."""
        self.threads.close()
        self.fingerprints.close()
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait({self._learning})
        await self.recorder.stop()

    @property
    def busy(self) -> bool:
        """Whether a thread still renders."""
        return self.threads.outstanding > 0

    async def find(self, body: bytes) -> RenderService:
        """The one service there is; a body for another model it refuses itself."""
        return self.service

    def _check_key(self, request: web.Request) -> None:
        if self.config.api_key is not None:
            check_api_key(request.headers.get("Authorization"), self.config.api_key)

    async def _ready(self, request: web.Request, identity: bytes) -> web.Response:
        if self.leaving:
            return answers.json({"status": "leaving"}, identity, status=503)
        return answers.json({"status": "ready"}, identity)

    async def _model(self, request: web.Request, identity: bytes) -> web.Response:
        name = request.match_info["name"]
        return answers.one_model(self.service.models(), name, identity)

    async def _server_info(self, request: web.Request, identity: bytes) -> web.Response:
        fingerprint = self.fingerprints.of(self.service.renderer)
        told = server_info.of_render_server(self.service, fingerprint)
        return answers.json(told, identity)

    async def _exposition(self, request: web.Request, identity: bytes) -> web.Response:
        return answers.own(await self.metrics.exposition(), identity, CONTENT_TYPE)


def _load(config: RenderConfig) -> RenderService:
    if config.model is None:
        raise ConfigError("--model DIR_OR_ID is missing")
    profile = DEFAULT_PROFILE if config.profile == "auto" else config.profile
    try:
        renderer = load_renderer(config, config.model, profile)
    except ModelNotFound as error:
        raise ConfigError(f"--model {config.model}: {error}") from None
    options = RenderOptions(
        served_model_names=config.served_model_name or (config.model,),
        max_model_len=config.max_model_len or renderer.model.max_length,
        reasoning_parser=config.reasoning_parser,
        tool_call_parser=config.tool_call_parser,
        trust_request_chat_template=config.trust_request_chat_template,
        dialect=config.render_dialect,
    )
    return RenderService(renderer, options)


def _saying(value: object) -> Handler:
    """A handler that always answers the same."""
    body = msgspec.json.encode(value)

    async def say(request: web.Request, identity: bytes) -> web.Response:
        return answers.own(body, identity)

    return say


async def _nothing(request: web.Request, identity: bytes) -> web.StreamResponse:
    raise NotFound("there is no such route here")
