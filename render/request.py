"""The body of a render request, decoded; what is no JSON object is refused."""

import json
from typing import Any

import msgspec

from render.body import Json
from render.errors import Unrenderable
from render.refused import RenderRefused, bad_value, missing, not_valid

MAX_DEPTH = 128  # of lists and objects in each other; templates print them recursively
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must "
    "provide a chat template if the tokenizer does not define one."
)


def read_request(body: bytes) -> Json:
    """The object; raises RenderRefused as the engine's JSON reader would."""
    if not body.strip():
        raise missing("body", {})
    try:
        request = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _bad_json(body, error) from error
    if not isinstance(request, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise not_valid("model_attributes_type", "body", message, request)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_deep(request):
        raise RenderRefused("The body is nested too deeply", type="Bad Request")
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
    if error.reason == "model_type":
        return RenderRefused(error.message, status=501, type="NotImplementedError")
    if error.reason == "tokenizer_error":
        return RenderRefused(error.message, status=500, type="InternalServerError")
    if error.reason == "no_template":
        return RenderRefused(NO_TEMPLATE)
    if error.reason == "too_large":
        return bad_value(f"Too long: {error.message}.", "input_text")
    return RenderRefused(error.message)


def _bad_json(body: bytes, error: Exception) -> RenderRefused:
    """Python's own words for it, as the engine answers with them."""
    where, words = "body", str(error)
    try:
        json.loads(body)
    except json.JSONDecodeError as found:
        where, words = f"body.{found.pos}", found.msg
    except (UnicodeError, RecursionError, ValueError) as found:
        words = str(found)
    return not_valid("json_invalid", where, "JSON decode error", {}, error=words)
