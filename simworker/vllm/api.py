"""The HTTP routes of a simulated vLLM worker: only this engine's."""

from collections.abc import Mapping

import msgspec
from aiohttp import web

from simworker.api import Api, Parts, Route
from simworker.errors import ApiError, json_answer
from simworker.hashing import Identity
from simworker.request import Call, read_body
from simworker.vllm import metrics, tokens
from simworker.vllm.calls import chat_call, completion_call
from simworker.vllm.errors import envelope
from simworker.vllm.generate import (
    GenerateExchange,
    aborted_ids,
    generate_call,
    media_of,
    tokens_only_call,
)
from simworker.vllm.generation import ChatExchange, CompletionExchange
from simworker.vllm.models import Models

VERSION = "0.32.0"


class VllmApi(Api):
    """The handlers. Raises BadOptions for adapters that are none."""

    envelope = staticmethod(envelope)

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._models = Models(
            parts.options.served_model_name or (parts.model,),
            parts.options.lora_modules,
            root=str(parts.renderer.model.path),
            max_model_len=parts.max_model_len,
            created=int(parts.ranks.started),
        )

    def _posts(self) -> Mapping[str, Route]:
        posts: dict[str, Route] = {
            "/inference/v1/generate": self.generate,
            "/inference/v1/abort_requests": self.abort,
            "/ping": self.health,
        }
        if self._parts.options.api == "all":
            posts |= {
                "/v1/chat/completions": self.chat,
                "/v1/completions": self.completions,
                "/tokenize": self.tokenize,
                "/detokenize": self.detokenize,
            }
        if self._parts.options.dev_mode:
            posts["/reset_prefix_cache"] = self.reset
        return posts

    def _gets(self) -> Mapping[str, Route]:
        return {
            "/v1/models": self.list_models,
            "/health": self.health,
            "/ping": self.health,
            "/load": self.load,
            "/version": self.version,
            "/metrics": self.metrics,
            "/kv_event_sources": self.sources,
        }

    def _resolve(self, call: Call, headers: Mapping[str, str]) -> tuple[str, Identity]:
        model, identity = self._models.resolve(call.model, call.salt)
        rank, ranks = call.rank, len(self._parts.ranks)
        if rank is not None and not 0 <= rank < ranks:
            raise ApiError(f"data_parallel_rank {rank} is out of range [0, {ranks}).")
        media = media_of(call.body)
        return model, msgspec.structs.replace(identity, media=media)

    # --- generating

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions"""
        planner = self._parts.planner
        return await self._generate(request, chat_call, planner.chat, ChatExchange)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions"""
        plan = self._parts.planner.completion
        return await self._generate(request, completion_call, plan, CompletionExchange)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /inference/v1/generate"""
        plan, whole = self._parts.planner.generation, self._parts.options.api == "all"
        parse = generate_call if whole else tokens_only_call
        return await self._generate(request, parse, plan, GenerateExchange)

    async def abort(self, request: web.Request) -> web.Response:
        """POST /inference/v1/abort_requests: names nobody knows are fine"""
        for name in aborted_ids(await read_body(request)):
            if name in self._open:
                self._open[name].abort()
        return web.Response()

    # --- tokens

    async def tokenize(self, request: web.Request) -> web.Response:
        """POST /tokenize"""
        body = await read_body(request)
        parts = self._parts
        self._models.resolve(body.get("model"), None)
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
        return json_answer(self._models.listing())

    async def load(self, request: web.Request) -> web.Response:
        """GET /load: requests in the engine"""
        engines = [rank.engine for rank in self._parts.ranks]
        load = sum(engine.running + engine.waiting for engine in engines)
        return json_answer({"server_load": load})

    async def version(self, request: web.Request) -> web.Response:
        """GET /version"""
        return json_answer({"version": VERSION})

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics"""
        parts = self._parts
        text = metrics.page(
            parts.ranks,
            self.totals,
            model=self._models.main,
            config=metrics.CacheConfig(
                block_size=parts.ranks.block_size,
                num_gpu_blocks=parts.options.blocks,
                prefix_caching_hash_algo=parts.options.hash_algo,
            ),
        )
        return web.Response(text=text, content_type="text/plain")

    async def sources(self, request: web.Request) -> web.Response:
        """GET /kv_event_sources: where each rank publishes; {} with events off"""
        publishers = enumerate(self._parts.ranks.publishers)
        return json_answer({str(rank): each.listing() for rank, each in publishers})

    async def reset(self, request: web.Request) -> web.Response:
        """POST /reset_prefix_cache (dev mode only)"""
        return json_answer({"success": self._parts.ranks.reset()})
