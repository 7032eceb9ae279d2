"""The body of a render request, decoded; what is no JSON object is refused."""

import json
from collections.abc import Collection
from typing import Any

import msgspec

from render.body import Json
from render.errors import Unrenderable
from render.refused import RenderRefused, bad_value, missing, not_valid

FOR_GATEWAYS = ("nvext", "cache_namespace")
"""Fields that TensorRT-LLM's render routes ignore."""
MAX_DEPTH = 128  # of lists and objects in each other; templates print them recursively
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must "
    "provide a chat template if the tokenizer does not define one."
)


def read_request(body: bytes, known: Collection[str] | None = None) -> Json:
    """The object; raises RenderRefused as the engine's JSON reader would.

    `known` are the fields that the engine takes, where it refuses any other; what is
    meant for a gateway is no longer in the object then.
    """
    if not body.strip():
        raise missing("body", {})
    try:
        request = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        request = _as_python_reads(body)
    if not isinstance(request, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise not_valid("model_attributes_type", "body", message, request)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_deep(request):
        raise RenderRefused("The body is nested too deeply", type="Bad Request")
    if known is not None:
        request = {k: v for k, v in request.items() if k not in FOR_GATEWAYS}
        for name in request:
            if name not in known:
                text = "Extra inputs are not permitted"
                raise not_valid("extra_forbidden", f"body.{name}", text, request[name])
    return request


def _is_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def refused(error: Unrenderable, model: str, media: str | None = None) -> RenderRefused:
    """What an endpoint answers to what the renderer cannot do.

    `model` is its served name, `media` names the part that is not text.
    """
    if error.reason == "media":
        named = "" if media is None else f" ({media})"
        return RenderRefused(f"{model} is not a multimodal model{named}")
    if error.reason in ("model_type", "missing_extra"):
        return RenderRefused(error.message, status=501, type="NotImplementedError")
    if error.reason == "tokenizer_error":
        return RenderRefused(error.message, status=500, type="InternalServerError")
    if error.reason == "no_template":
        return RenderRefused(NO_TEMPLATE)
    if error.reason == "too_large":
        return bad_value(f"Too long: {error.message}.", "input_text")
    return RenderRefused(error.message)


def _as_python_reads(body: bytes) -> object:
    """What Python's own reader, the engines', takes beyond JSON; raises RenderRefused.

    A mark of the byte order, UTF-16, NaN, numbers out of range; half of a surrogate
    pair it takes too, but pydantic does not.
    """
    where = "body"
    try:
        request: object = json.loads(body)
        json.dumps(request, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        where, words = f"body.{error.pos}", error.msg
    except UnicodeEncodeError as error:
        message = (
            "Input should be a valid string, unable to parse raw data as a unicode "
            f"string: {error.reason}"
        )
        raise not_valid("string_unicode", where, message, {}) from error
    except (UnicodeError, RecursionError, ValueError) as error:
        words = str(error)
    else:
        return request
    raise not_valid("json_invalid", where, "JSON decode error", {}, error=words)
