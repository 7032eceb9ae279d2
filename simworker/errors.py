"""Refused requests: what the engines share. How each words and wraps one is its own.

All of them stand on FastAPI, so bodies of the wrong shape are told in pydantic's words.
"""

from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from render.refused import RenderRefused

NOT_VALID = "Bad Request"  # the type of what pydantic refuses

Envelope = Callable[[RenderRefused], Mapping[str, object]]


class ApiError(RenderRefused):
    """A refused request: an HTTP status and the fields of the engine's error body.

    It has the fields of what the render package refuses, which is answered alike.
    """


def not_valid(
    kind: str, where: str, message: str, value: object, detail: str = ""
) -> ApiError:
    """A body that is not of the right shape: what pydantic says of it."""
    shown = _shown(value)
    text = (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': '{where}', "
        f"'msg': '{message}', 'input': {shown!r}{detail}}}"
    )
    return ApiError(text, type=NOT_VALID, param=where)


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list):
        name = "list" if isinstance(value, list) else "dict"
        return f"<{name} of {len(value)} items>"
    return str(value)[:200]


def flat(error: RenderRefused, code: int | str | None = None) -> dict[str, object]:
    """The error body of TensorRT-LLM and SGLang: not wrapped; `code` is the status."""
    return {
        "object": "error",
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.status if code is None else code,
    }


def answer_errors(envelope: Envelope) -> Middleware:
    """Turn refusals, and what the server refuses, into the engine's answers."""

    @web.middleware
    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RenderRefused as error:
            return json_answer(envelope(error), status=error.status)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            told = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            body = {"detail": error.reason}
            return json_answer(body, status=error.status, headers=told)

    return answered


def json_answer(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON answer, written as compactly as the engines do."""
    return web.Response(
        body=msgspec.json.encode(value),
        status=status,
        headers=headers,
        content_type="application/json",
    )
