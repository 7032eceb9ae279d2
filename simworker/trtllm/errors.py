"""TensorRT-LLM's error answers: flat, but for bodies that pydantic refuses."""

from render import Unrenderable
from render.refused import RenderRefused
from simworker.errors import NOT_VALID, ApiError, flat

TOO_LONG = "context_length_exceeded"


class TooLong(ApiError):
    """The prompt does not fit the context; `code` is a name then, not the status."""


def envelope(error: RenderRefused) -> dict[str, object]:
    """The body of an error answer."""
    if error.type == NOT_VALID:
        return {"error": error.message}
    return flat(error, TOO_LONG if isinstance(error, TooLong) else None)


def check_length(limit: int, prompt: int, output: int | None) -> None:
    """Only the prompt must fit: too long an output is cut to what is left."""
    if not prompt:
        raise ApiError("The prompt has no tokens.")
    if prompt >= limit:
        raise TooLong(
            f"`default_max_tokens` ({limit - prompt}) must be greater than 0, "
            f"`default_max_tokens` ({limit - prompt}) = max_seq_len ({limit}) - "
            f"`splited_prompt_len` ({prompt}) - `query_token_len` (0)"
        )


def forwarded_too_long(limit: int, tokens: int) -> ApiError:
    """Ids are no different from a text."""
    return TooLong(f"A prompt of {tokens} tokens exceeds max_seq_len ({limit})")


def out_of_vocabulary(token_id: int, size: int, param: str | None) -> ApiError:
    """An id that the model does not have."""
    return ApiError("Token ID out of range (1 requests)")


def unrenderable(error: Unrenderable, model: str) -> ApiError:
    """What the renderer cannot do."""
    return ApiError(str(error))
