"""The HTTP routes of a simulated vLLM worker: only this engine's, and `/sim/stats`."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

import msgspec
from aiohttp import web

from render import Renderer
from simworker.cache import BlockCache
from simworker.publisher import Publisher
from simworker.runner import Runner
from simworker.vllm import metrics, tokens
from simworker.vllm.calls import Call, chat_call, completion_call, read_body
from simworker.vllm.errors import ApiError, answer_errors, json_answer
from simworker.vllm.fields import Body
from simworker.vllm.generation import (
    ChatExchange,
    CompletionExchange,
    Exchange,
    Service,
)
from simworker.vllm.models import Models
from simworker.vllm.planning import Planner, Task

VERSION = "0.32.0"
RANKS = 1
MAX_BODY = 256 << 20

_T = TypeVar("_T")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What the routes work with; `started` is in Unix seconds."""

    renderer: Renderer
    planner: Planner
    models: Models
    runner: Runner
    cache: BlockCache
    publisher: Publisher | None
    config: metrics.CacheConfig
    service: Service
    executor: Executor
    max_model_len: int
    started: float
    dev_mode: bool


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """Tell a client behind a gateway which worker answered, under what address."""
    response.headers["Server"] = "uvicorn"
    response.headers["X-Sim-Worker"] = f"http://{request.host}"


class VllmApi:
    """The handlers. `totals` is for tests, and for `/sim/stats`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.totals = metrics.Totals()

    def application(self) -> web.Application:
        """The aiohttp application with all routes."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[answer_errors])
        posts = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completions,
            "/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
            "/ping": self.health,
        }
        gets = {
            "/v1/models": self.list_models,
            "/health": self.health,
            "/ping": self.health,
            "/load": self.load,
            "/version": self.version,
            "/metrics": self.metrics,
            "/kv_event_sources": self.sources,
            "/sim/stats": self.stats,
        }
        if self._parts.dev_mode:
            posts["/reset_prefix_cache"] = self.reset
        app.add_routes([web.post(path, handler) for path, handler in posts.items()])
        for path, handler in gets.items():
            app.router.add_get(path, handler, allow_head=False)
        app.on_response_prepare.append(_sign)
        return app

    # --- generating

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions"""
        planner = self._parts.planner
        return await self._generate(request, chat_call, planner.chat, ChatExchange)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions"""
        plan = self._parts.planner.completion
        return await self._generate(request, completion_call, plan, CompletionExchange)

    async def _generate(
        self,
        request: web.Request,
        parse: Callable[[Body, Mapping[str, str], int], Call],
        plan: Callable[[Call], list[Task]],
        exchange: type[Exchange],
    ) -> web.StreamResponse:
        parts = self._parts
        self.totals.requests += 1
        try:
            body = await read_body(request)
            call = parse(body, request.headers, parts.max_model_len)
            model, identity = parts.models.resolve(call.model, call.salt)
            _check_rank(request)
            tasks = await self._in_thread(lambda: plan(call))
        except ApiError:
            self.totals.refused += 1
            raise
        running = exchange(parts.service, call, tasks, model=model, identity=identity)
        answer = await running.answer(request)
        self.totals.add(tasks)
        return answer

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(
            self._parts.executor, work
        )

    # --- tokens

    async def tokenize(self, request: web.Request) -> web.Response:
        """POST /tokenize"""
        body = await read_body(request)
        parts = self._parts
        parts.models.resolve(body.get("model"), None)
        limit = parts.max_model_len
        return json_answer(
            await self._in_thread(
                lambda: tokens.tokenize(parts.planner, body, max_model_len=limit)
            )
        )

    async def detokenize(self, request: web.Request) -> web.Response:
        """POST /detokenize"""
        body = await read_body(request)
        renderer = self._parts.renderer
        return json_answer(
            await self._in_thread(lambda: tokens.detokenize(renderer, body))
        )

    # --- what the worker says about itself

    async def list_models(self, request: web.Request) -> web.Response:
        """GET /v1/models"""
        return json_answer(self._parts.models.listing())

    async def health(self, request: web.Request) -> web.Response:
        """GET /health, GET and POST /ping: an empty 200"""
        return web.Response()

    async def load(self, request: web.Request) -> web.Response:
        """GET /load: requests in the engine"""
        engine = self._parts.runner.engine
        return json_answer({"server_load": engine.running + engine.waiting})

    async def version(self, request: web.Request) -> web.Response:
        """GET /version"""
        return json_answer({"version": VERSION})

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics"""
        parts = self._parts
        text = metrics.page(
            parts.runner.engine,
            parts.cache,
            self.totals,
            aborted=parts.runner.aborted,
            model=parts.models.main,
            config=parts.config,
            started=parts.started,
        )
        return web.Response(text=text, content_type="text/plain")

    async def sources(self, request: web.Request) -> web.Response:
        """GET /kv_event_sources: where each rank publishes; {} with events off"""
        publisher = self._parts.publisher
        return json_answer({"0": publisher.listing()} if publisher else {})

    async def reset(self, request: web.Request) -> web.Response:
        """POST /reset_prefix_cache (dev mode only)"""
        return json_answer({"success": self._parts.cache.clear()})

    async def stats(self, request: web.Request) -> web.Response:
        """GET /sim/stats: what tests want to know; no engine has this route"""
        parts, totals = self._parts, self.totals
        publisher = parts.publisher
        return json_answer(
            {
                "requests": totals.requests,
                "refused": totals.refused,
                "finished": sum(totals.finished.values()),
                "aborted": parts.runner.aborted,
                "running": parts.runner.engine.running,
                "waiting": parts.runner.engine.waiting,
                "queried_tokens": parts.runner.engine.queried_tokens,
                "hit_tokens": parts.runner.engine.hit_tokens,
                "held_blocks": parts.cache.held,
                "event_batches": publisher.next_sequence if publisher else 0,
            }
        )


def _check_rank(request: web.Request) -> None:
    asked = request.headers.get("X-data-parallel-rank", "").strip()
    if asked.lstrip("-").isdecimal() and not 0 <= int(asked) < RANKS:
        raise ApiError(f"data_parallel_rank {asked} is out of range [0, {RANKS}).")
