"""SGLang's error answers: always flat, and the messages its clients know."""

from render import Unrenderable
from render.refused import RenderRefused
from simworker.errors import ApiError, flat


def envelope(error: RenderRefused) -> dict[str, object]:
    """The body of an error answer."""
    return flat(error)


def check_length(limit: int, prompt: int, output: int | None) -> None:
    """The prompt must leave room, and the output asked for must fit."""
    if not prompt:
        raise ApiError("The prompt has no tokens.")
    if prompt >= limit:
        raise ApiError(
            f"The input ({prompt} tokens) is longer than the model's context length "
            f"({limit} tokens)."
        )
    if output is not None and prompt + output > limit:
        raise ApiError(
            "Requested token count exceeds the model's maximum context length of "
            f"{limit} tokens. You requested a total of {prompt + output} tokens: "
            f"{prompt} tokens from the input messages and {output} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or "
            "the completion to fit within the limit."
        )


def forwarded_too_long(limit: int, tokens: int) -> ApiError:
    """Ids are no different from a text."""
    return ApiError(
        f"The input ({tokens} tokens) is longer than the model's context length "
        f"({limit} tokens)."
    )


def out_of_vocabulary(token_id: int, size: int, param: str | None) -> ApiError:
    """An id that the model does not have."""
    return ApiError(
        f"The {param} contains values greater than the vocab size ({size})."
    )


def unrenderable(error: Unrenderable, model: str) -> ApiError:
    """What the renderer cannot do."""
    return ApiError(str(error))
