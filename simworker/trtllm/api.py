"""The HTTP routes of a simulated TensorRT-LLM worker: only this engine's."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from kvindex.blocks import unpack_ids
from render import RenderOptions, RenderRefused, RenderService
from simworker.api import Api, Parts, Route
from simworker.errors import ApiError, json_answer, not_valid
from simworker.hashing import Identity
from simworker.options import BadOptions
from simworker.request import Body, Call, read_body
from simworker.trtllm import fields, metrics
from simworker.trtllm.calls import chat_call, completion_call
from simworker.trtllm.errors import envelope
from simworker.trtllm.fingerprint import (
    compared_fields,
    fingerprint,
    read_compared,
    read_mode,
)
from simworker.trtllm.generate import EXCHANGES, generate_call, kind_of, plan
from simworker.trtllm.generation import ChatExchange, CompletionExchange

VERSION = "1.4.0rc4"
RENDER_SWITCH = "TRTLLM_ENABLE_RENDER_ENDPOINTS"
IGNORED_SWITCH = "TRTLLM_RENDER_IGNORED_FIELDS"
IGNORED = ("nvext", "cache_namespace")  # of a gateway; not part of what is rendered


class TrtllmApi(Api):
    """The handlers. `mode` is how the fingerprint is told; tests may change it.

    Raises BadOptions for a fingerprint that cannot be told.
    """

    envelope = staticmethod(envelope)

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        options = parts.options
        self.mode = read_mode(options.render_fingerprint)
        given = options.render_fingerprint_file
        self._compared = read_compared(Path(given)) if given else None
        self._told_requests = 0
        ignored = os.environ.get(IGNORED_SWITCH, "").split(",")
        self._ignored = {*IGNORED, *(name.strip() for name in ignored)}

    def _posts(self) -> Mapping[str, Route]:
        posts: dict[str, Route] = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completions,
            "/_internal/tokenize": self.tokenize,
            "/kv_cache_events": self.events,
            "/generate": self.generate,
            "/sim/render_fingerprint": self.change_mode,
        }
        if os.environ.get(RENDER_SWITCH) == "1":
            posts["/v1/chat/completions/render"] = self.render_chat
            posts["/v1/completions/render"] = self.render_completions
        return posts

    def _gets(self) -> Mapping[str, Route]:
        return {
            "/health": self.health,
            "/health_generate": self.health_generate,
            "/version": self.version,
            "/v1/models": self.list_models,
            "/server_info": self.server_info,
            "/metrics": self.metrics,
            "/prometheus/metrics": self.prometheus,
        }

    def _resolve(self, call: Call, headers: Mapping[str, str]) -> tuple[str, Identity]:
        """Any name will do; answers repeat it."""
        identity = Identity(
            adapter=call.adapter, adapter_id=call.adapter_id, salt=call.salt
        )
        return call.model or "", identity

    # --- generating and rendering

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions"""
        planner = self._parts.planner
        return await self._generate(request, chat_call, planner.chat, ChatExchange)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions"""
        plan = self._parts.planner.completion
        return await self._generate(request, completion_call, plan, CompletionExchange)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /generate"""
        kind = kind_of(await read_body(request))  # which is read but once
        work = partial(plan, self._parts.planner)
        return await self._generate(request, generate_call, work, EXCHANGES[kind])

    async def render_chat(self, request: web.Request) -> web.Response:
        """POST /v1/chat/completions/render"""
        return await self._render(request, chat_call, RenderService.chat)

    async def render_completions(self, request: web.Request) -> web.Response:
        """POST /v1/completions/render"""
        return await self._render(request, completion_call, RenderService.completions)

    async def _render(
        self,
        request: web.Request,
        check: Callable[[Body, Mapping[str, str], int], Call],
        render: Callable[..., object],
    ) -> web.Response:
        """All refusals are flat here, also those of pydantic."""
        try:
            body = self._rendered(await read_body(request))
            check(body, request.headers, self._parts.max_model_len)
            service, raw = self._service(body), json.dumps(body).encode()
            id_ = request.headers.get("X-Request-Id")
            answer = await self._in_thread(lambda: render(service, raw, request_id=id_))
        except RenderRefused as error:
            return json_answer(error.body("trtllm"), status=error.status)
        return json_answer(answer)

    def _rendered(self, body: Body) -> Body:
        return {name: v for name, v in body.items() if name not in self._ignored}

    def _service(self, body: Body) -> RenderService:
        # Any name will do here, too.
        options = RenderOptions(
            served_model_names=(body["model"],),
            max_model_len=self._parts.max_model_len,
            dialect="trtllm",
        )
        return RenderService(self._parts.renderer, options)

    async def tokenize(self, request: web.Request) -> web.Response:
        """POST /_internal/tokenize: of plain text only"""
        body = fields.read(await read_body(request), fields.TOKENIZE, ("prompt",))
        planner, text = self._parts.planner, {"prompt": body["prompt"]}
        if not body["prompt"]:
            return json_answer({"count": 0, "tokens": []})
        (rendered,) = await self._in_thread(lambda: planner.render_completion(text))
        tokens = unpack_ids(rendered.token_ids)
        return json_answer({"count": len(tokens), "tokens": tokens})

    # --- what the worker says about itself

    async def health_generate(self, request: web.Request) -> web.Response:
        """GET /health_generate: a generation, of one token"""
        await self._one_token()
        return web.Response(text="Generation health check OK")

    async def version(self, request: web.Request) -> web.Response:
        """GET /version"""
        return json_answer({"version": VERSION})

    async def list_models(self, request: web.Request) -> web.Response:
        """GET /v1/models: one card; a directory is called by its last name"""
        parts = self._parts
        named = parts.options.served_model_name
        card = {
            "id": named[0] if named else Path(parts.model).name,
            "object": "model",
            "created": int(parts.ranks.started),
            "owned_by": "tensorrt_llm",
        }
        return json_answer({"object": "list", "data": [card]})

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics: iteration statistics since the last read, in JSON"""
        rank = self._parts.ranks[0]
        engine, cache = rank.engine, rank.cache
        if self._told_requests == self.totals.requests:
            return json_answer([])
        self._told_requests = self.totals.requests
        stats = {
            "numActiveRequests": engine.running,
            "numQueuedRequests": engine.waiting,
            "kvCacheStats": {
                "maxNumBlocks": cache.capacity,
                "freeNumBlocks": cache.free,
                "usedNumBlocks": cache.used,
                "tokensPerBlock": cache.block_size,
            },
        }
        return json_answer([stats])

    async def prometheus(self, request: web.Request) -> web.Response:
        """GET /prometheus/metrics, as with return_perf_metrics: true"""
        rank, names = self._parts.ranks[0], self._parts.options.served_model_name
        model = names[0] if names else Path(self._parts.model).name
        return web.Response(text=metrics.page(rank, model), content_type="text/plain")

    async def events(self, request: web.Request) -> web.Response:
        """POST /kv_cache_events: all events since the last call, once"""
        buffer = self._parts.buffer
        if buffer is None:
            return json_answer([])
        faults = self._parts.ranks.faults
        if faults.drain == "hang":
            await asyncio.sleep(faults.pause_s)
        elif faults.drain == "error":
            raise ApiError("the launcher is gone", status=503, type="Unavailable")
        elif faults.drain == "garbage":
            return web.Response(text="<html>not this one</html>")
        return web.Response(body=buffer.drain(), content_type="application/json")

    async def server_info(self, request: web.Request) -> web.Response:
        """GET /server_info"""
        mode = self.mode
        await asyncio.sleep(mode.delay_s)
        if mode.kind == "error":
            message = "the executor does not answer"
            raise ApiError(message, status=500, type="InternalServerError")
        if mode.kind == "unauthorised":
            raise ApiError("Unauthorized", status=401, type="Unauthorized")
        if mode.kind == "garbage":
            return web.Response(text="<html>not this one</html>")
        info: dict[str, Any] = {
            "disaggregated_params": {},
            "max_batch_size": self._parts.options.max_running,
            "kv_cache_hash_algo": self._parts.options.event_hash_algo,
            "tokens_per_block": self._parts.ranks.block_size,
            "startup_metrics": {},
        }
        if mode.kind != "missing":
            if self._compared is None:
                renderer = self._parts.renderer
                self._compared = await self._in_thread(
                    lambda: compared_fields(renderer)
                )
            if self._compared is not None:
                info["render_fingerprint"] = fingerprint(self._compared, mode)
        return json_answer(info)

    async def change_mode(self, request: web.Request) -> web.Response:
        """POST /sim/render_fingerprint {"mode": MODE}; no engine has this route"""
        wanted = (await read_body(request)).get("mode")
        try:
            self.mode = read_mode(str(wanted))
        except BadOptions as error:
            raise not_valid("literal_error", "body.mode", str(error), wanted) from error
        return json_answer({"mode": str(wanted)})
