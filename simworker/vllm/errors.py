"""vLLM's error answers: one envelope, and the messages its clients know.

`ApiError` is the only exception a handler raises on purpose. Texts and statuses are
those of vLLM 0.32.
"""

from collections.abc import Mapping

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler


class ApiError(Exception):
    """A refused request: an HTTP status and the fields of the error envelope."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "BadRequestError",
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.envelope = {
            "error": {"message": message, "type": kind, "param": param, "code": status}
        }


def bad_value(message: str, param: str, **value: object) -> ApiError:
    """A value the engine refuses; the parameter is named in the message too."""
    shown = "".join(f", value={item}" for item in value.values())
    return ApiError(f"{message} (parameter={param}{shown})", param=param)


def not_valid(
    kind: str, where: str, message: str, value: object, detail: str = ""
) -> ApiError:
    """A body that is not of the right shape: what pydantic says, in vLLM's words."""
    shown = _shown(value)
    text = (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': '{where}', "
        f"'msg': '{message}', 'input': {shown!r}{detail}}}"
    )
    return ApiError(text, kind="Bad Request", param=where)


def _shown(value: object) -> str:
    if isinstance(value, Mapping | list):
        name = "list" if isinstance(value, list) else "dict"
        return f"<{name} of {len(value)} items>"
    return str(value)[:200]


def unknown_model(model: object, known: list[str]) -> ApiError:
    """The model is not served here."""
    return ApiError(
        f"The model `{model}` does not exist. Valid aliases: {', '.join(known)}.",
        status=404,
        kind="NotFoundError",
        param="model",
    )


def too_long(limit: int) -> ApiError:
    """The prompt alone is longer than the model's context."""
    return ApiError(
        f"This model's maximum context length is {limit} tokens. However, your prompt "
        f"contains at least {limit + 1} input tokens, which exceeds this limit even "
        "without any output tokens. Please reduce the length of the input prompt. "
        f"(parameter=input_tokens, value={limit + 1})",
        param="input_tokens",
    )


def too_long_with_output(limit: int, prompt: int, output: int) -> ApiError:
    """Prompt and requested output together are longer than the model's context."""
    return ApiError(
        f"This model's maximum context length is {limit} tokens. However, you "
        f"requested {output} output tokens and your prompt contains at least {prompt} "
        f"input tokens, for a total of at least {prompt + output} tokens. Please "
        "reduce the length of the input prompt or the number of requested output "
        "tokens. "
        f"(parameter=input_tokens, value={prompt})",
        param="input_tokens",
    )


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn `ApiError`, and what the server refuses, into the engine's answers."""
    try:
        return await handler(request)
    except ApiError as error:
        return json_answer(error.envelope, status=error.status)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return json_answer(
            {"detail": error.reason}, status=error.status, headers=headers
        )


def json_answer(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON answer, written as compactly as the engine does."""
    return web.Response(
        body=msgspec.json.encode(value),
        status=status,
        headers=headers,
        content_type="application/json",
    )
