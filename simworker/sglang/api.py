"""The HTTP routes of a simulated SGLang worker: only this engine's.

It runs as with `--enable-cache-report`, unless told otherwise.
"""

import asyncio
import time
from collections.abc import Mapping

import msgspec
from aiohttp import web

from simworker.api import Api, Parts, Route
from simworker.errors import ApiError, json_answer
from simworker.hashing import Identity
from simworker.options import read_adapters
from simworker.request import Call, read_body
from simworker.sglang import info, tokens
from simworker.sglang.calls import chat_call, completion_call
from simworker.sglang.errors import envelope
from simworker.sglang.generate import GenerateExchange, generate_call
from simworker.sglang.generation import ChatExchange, CompletionExchange

# A health check generates a token, and looks once a second whether it did.
HEALTH_CHECK_S = 1.0
HEALTH_TIMEOUT_S = 20.0


class SglangApi(Api):
    """The handlers. Raises BadOptions for adapters that are none."""

    envelope = staticmethod(envelope)

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._name = (parts.options.served_model_name or (parts.model,))[0]
        self._adapters = read_adapters(parts.options.lora_modules)

    def _posts(self) -> Mapping[str, Route]:
        return {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.completions,
            "/generate": self.generate,
            "/tokenize": self.tokenize,
            "/v1/tokenize": self.tokenize,
            "/detokenize": self.detokenize,
            "/v1/detokenize": self.detokenize,
            "/flush_cache": self.flush,
        }

    def _gets(self) -> Mapping[str, Route]:
        return {
            "/ready": self.health,
            "/ping": self.health,
            "/health": self.health_generate,
            "/health_generate": self.health_generate,
            "/v1/models": self.list_models,
            "/v1/models/{id:.+}": self.model,
            "/server_info": self.server_info,
            "/get_server_info": self.server_info,
            "/model_info": self.model_info,
            "/get_model_info": self.model_info,
            "/v1/loads": self.loads,
            "/flush_cache": self.flush,
        }

    def _resolve(self, call: Call, headers: Mapping[str, str]) -> tuple[str, Identity]:
        """Any name will do, but for one of an adapter that is not loaded."""
        model, ranks = call.model or "", len(self._parts.ranks)
        if call.rank is not None and not 0 <= call.rank < ranks:
            raise ApiError(f"routed_dp_rank={call.rank} must be in range [0, {ranks})")
        named = "" if model == self._name else model.partition(":")[2].strip()
        adapter = Identity()
        if name := named or call.adapter:
            adapter = self._adapter(name)
        identity = msgspec.structs.replace(
            adapter, salt=call.salt, extra_key=call.extra_key
        )
        return model, identity

    def _adapter(self, name: str) -> Identity:
        if not self._adapters:
            raise ApiError(
                f"LoRA adapter '{name}' was requested, but LoRA is not enabled. "
                "Please launch the server with --enable-lora flag and preload adapters "
                "using --lora-paths or /load_lora_adapter endpoint."
            )
        if name not in self._adapters:
            raise ApiError(f"Got LoRA adapter that has never been loaded: {name}")
        return self._adapters[name]

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
        """POST /generate"""
        plan = self._parts.planner.completion
        return await self._generate(request, generate_call, plan, GenerateExchange)

    # --- tokens

    async def tokenize(self, request: web.Request) -> web.Response:
        """POST /tokenize"""
        body, parts = await read_body(request), self._parts
        limit = parts.max_model_len
        return json_answer(
            await self._in_thread(
                lambda: tokens.tokenize(parts.planner, body, max_model_len=limit)
            )
        )

    async def detokenize(self, request: web.Request) -> web.Response:
        """POST /detokenize"""
        body, renderer = await read_body(request), self._parts.renderer
        return json_answer(
            await self._in_thread(lambda: tokens.detokenize(renderer, body))
        )

    # --- what the worker says about itself

    async def health_generate(self, request: web.Request) -> web.Response:
        """GET /health, GET /health_generate: a generation; a second at least"""
        speed = self._parts.options.speed
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S / speed):
                await self._one_token()
                await asyncio.sleep(HEALTH_CHECK_S / speed)
        except TimeoutError:
            return web.Response(status=503)
        return web.Response()

    async def list_models(self, request: web.Request) -> web.Response:
        """GET /v1/models"""
        return json_answer({"object": "list", "data": self._cards()})

    def _cards(self) -> list[info.Json]:
        return info.model_cards(self._parts, self._name, self._adapters)

    async def model(self, request: web.Request) -> web.Response:
        """GET /v1/models/{id}: the served name, or an adapter's"""
        asked = request.match_info["id"]
        for card in self._cards():
            if card["id"] == asked:
                return json_answer(card)
        error = {
            "message": f"The model '{asked}' does not exist",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return json_answer({"error": error}, status=404)

    async def server_info(self, request: web.Request) -> web.Response:
        """GET /server_info"""
        return json_answer(info.server_info(self._parts, self._name))

    async def model_info(self, request: web.Request) -> web.Response:
        """GET /model_info"""
        return json_answer(info.model_info(self._parts, self._name))

    async def loads(self, request: web.Request) -> web.Response:
        """GET /v1/loads: the core section, whatever is asked for"""
        return json_answer(info.loads(self._parts, time.time()))

    async def flush(self, request: web.Request) -> web.Response:
        """GET, POST /flush_cache: refused while requests run"""
        done = self._parts.ranks.reset()
        if done:
            self._parts.ranks.flush()
        text = "Cache flushed." if done else "Failed: requests are running."
        return web.Response(text=text, status=200 if done else 400)
