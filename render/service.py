"""One model's render endpoints, without the HTTP: bodies in, JSON-ready answers out."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kvindex.blocks import unpack_ids
from render.errors import Unrenderable
from render.refused import Dialect, RenderRefused, unknown_model
from render.renderer import Rendered, Renderer

Json = dict[str, Any]


def random_id() -> str:
    """A new request id, as vLLM makes them: 16 hexadecimal digits."""
    return secrets.token_hex(8)


class RenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a model's render endpoints behave.

    The first of `served_model_names` is what answers call the model; `max_model_len`
    is in tokens, None: unlimited. The parsers are names of the workers' options.
    """

    served_model_names: tuple[str, ...]
    max_model_len: int | None = None
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    trust_request_chat_template: bool = False
    dialect: Dialect = "union"


class RenderService:
    """Answers render requests as the engine of its renderer's profile does.

    No sockets and no event loop; safe to call from several threads. What is refused
    is raised as RenderRefused.
    """

    def __init__(
        self,
        renderer: Renderer,
        options: RenderOptions,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self.renderer = renderer
        self.options = options
        self._created = int(clock())
        self._new_id = new_id

    def chat(
        self, body: bytes, *, request_id: str | None = None, prompt_text: bool = False
    ) -> Json:
        """`POST /v1/chat/completions/render`."""
        request = self._read(body)
        try:
            rendered = self.renderer.render_chat(request)
        except Unrenderable as error:
            raise RenderRefused(error.message) from error
        id_ = "chatcmpl-" + (request_id or request.get("request_id") or self._new_id())
        return self._answer("chat", id_, rendered, request, prompt_text)

    def completions(
        self, body: bytes, *, request_id: str | None = None, prompt_text: bool = False
    ) -> list[Json]:
        """`POST /v1/completions/render`: one item for each prompt."""
        request = self._read(body)
        try:
            items = self.renderer.render_completion(request)
        except Unrenderable as error:
            raise RenderRefused(error.message) from error
        id_ = "cmpl-" + (request_id or request.get("request_id") or self._new_id())
        return [
            self._answer("completion", f"{id_}-{i}", item, request, prompt_text)
            for i, item in enumerate(items)
        ]

    def _read(self, body: bytes) -> Json:
        try:
            request = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise RenderRefused(str(error), type="Bad Request") from error
        if not isinstance(request, dict):
            raise RenderRefused("not an object", type="Bad Request", param="body")
        names = self.options.served_model_names
        if request.get("model") is not None and request["model"] not in names:
            raise unknown_model(request["model"], names)
        return request

    def _answer(
        self,
        kind: str,
        id_: str,
        rendered: Rendered,
        request: Mapping[str, object],
        prompt_text: bool,
    ) -> Json:
        answer: Json = {
            "schema_version": 1,
            "kind": kind,
            "request_id": id_,
            "token_ids": unpack_ids(rendered.token_ids),
            "model": request.get("model") or self.options.served_model_names[0],
            "cache_salt": request.get("cache_salt"),
            "reasoning_ended": None,
            "reasoning_parser_kwargs": None,
            "request": request,
        }
        return {**answer, "prompt": rendered.text} if prompt_text else answer
