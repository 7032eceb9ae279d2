"""An accepted request, whatever the engine; and the reading of its body."""

import json
from typing import Any

import msgspec
from aiohttp import web

from simworker.answers import Limits
from simworker.errors import NOT_VALID, ApiError, not_valid

Body = dict[str, Any]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One accepted request. `max_tokens` None: as many as the context leaves.

    `prompt_ids` are ids that came with it and replace rendering. `return_prompt_ids`
    and `return_token_ids` are whether the answer repeats ids of prompt and output.
    `report_hits`: its events tell the blocks that were found cached, too.
    `rank` is the data-parallel rank it must run on; `adapter` is one that a body names
    (SGLang), with TensorRT-LLM by name and number. `extra_key` is SGLang's.
    """

    body: Body
    request_id: str
    model: str | None
    choices: int = 1
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_prompt_ids: bool = False
    return_token_ids: bool = False
    logprobs: bool = False
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    salt: str | None = None
    extra_key: str | None = None
    prompt_ids: list[int] | None = None
    read_cache: bool = True
    report_hits: bool = False
    rank: int | None = None
    adapter: str | None = None
    adapter_id: int | None = None

    def limits(self, room: int) -> Limits:
        """What ends an answer when `room` tokens of the context are left."""
        return Limits(
            max_tokens=room if self.max_tokens is None else min(room, self.max_tokens),
            ignore_eos=self.ignore_eos,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            include_stop=self.include_stop,
        )


async def read_body(request: web.Request) -> Body:
    """The JSON object of a request. Raises ApiError as FastAPI would."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is "
            "allowed",
            type=NOT_VALID,
        )
    value = _parsed(await request.read())
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise not_valid("model_attributes_type", "body", message, value)
    return value


def _parsed(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        # Python's parser decides, as in the engines: it takes NaN and the like.
        pass
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        detail = f", 'ctx': {{'error': {error.msg!r}}}"
        where = f"body.{error.pos}"
        raise not_valid(
            "json_invalid", where, "JSON decode error", {}, detail
        ) from error
    except (ValueError, RecursionError) as error:
        message = "There was an error parsing the body"
        raise ApiError(message, type=NOT_VALID) from error
