"""vLLM's error answers: one envelope, and the messages its clients know.

Texts and statuses are those of vLLM 0.32.
"""

from render import Unrenderable
from render.refused import RenderRefused
from simworker.errors import ApiError


def envelope(error: RenderRefused) -> dict[str, object]:
    """The body of an error answer."""
    return error.body()


def bad_value(message: str, param: str, **value: object) -> ApiError:
    """A value the engine refuses; the parameter is named in the message too."""
    shown = "".join(f", value={item}" for item in value.values())
    return ApiError(f"{message} (parameter={param}{shown})", param=param)


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


def check_length(limit: int, prompt: int, output: int | None) -> None:
    """Prompt and output, at least one token, must fit. Raises ApiError."""
    if prompt > limit:
        raise too_long(limit)
    if prompt + (output or 1) > limit:
        raise too_long_with_output(limit, prompt, output or 1)


def forwarded_too_long(limit: int, tokens: int) -> ApiError:
    """Ids that came with a chat are more than the context."""
    return ApiError(
        f"Input length ({tokens}) exceeds model's maximum context length ({limit})."
    )


def out_of_vocabulary(token_id: int, size: int, param: str | None) -> ApiError:
    """An id that the model does not have."""
    if param is None:
        return ApiError(f"Token id {token_id} is out of vocabulary")
    return bad_value(f"Token id {token_id} is out of vocabulary", param)


def unrenderable(error: Unrenderable, model: str) -> ApiError:
    """What the renderer cannot do."""
    if error.reason == "media":
        return ApiError(f"{model} is not a multimodal model")
    return ApiError(str(error))
