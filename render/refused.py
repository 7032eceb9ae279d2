"""What a render endpoint answers when it does not render, in the engines' words.

Texts, types and statuses are those of vLLM 0.32. A refusal is an answer of the render
endpoints only: it never stops rendering for routing.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

Dialect = Literal["union", "trtllm", "vllm"]
SHOWN_CHARACTERS = 200  # of a value that is quoted in a message
MOST_CHARACTERS = 600  # of a message, of up to 6 bytes each in JSON: below 4 KB


class RenderRefused(Exception):
    """A request that is not rendered.

    `status` is the HTTP status, `type` and `param` are fields of the error body. What
    is too long of the message is cut: it may quote what the client sent.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "BadRequestError",
        param: str | None = None,
    ) -> None:
        self.message = message[:MOST_CHARACTERS]
        super().__init__(self.message)
        self.status = status
        self.type = type
        self.param = param

    def body(self, dialect: Dialect = "union") -> dict[str, object]:
        """The error body: OpenAI's, or TensorRT-LLM's flat one."""
        fields = {"message": self.message, "type": self.type, "param": self.param}
        if dialect == "trtllm":
            return {
                "object": "error",
                **fields,
                "type": "BadRequestError" if self.status == 400 else self.type,
                "code": self.status,
            }
        return {"error": {**fields, "code": self.status}}


def bad_value(message: str, param: str, *value: object) -> RenderRefused:
    """A value the engine refuses; parameter and value are named in the message too."""
    shown = "".join(f", value={item}" for item in value)
    return RenderRefused(f"{message} (parameter={param}{shown})", param=param)


def not_valid(
    kind: str, where: str, message: str, value: object, **context: object
) -> RenderRefused:
    """A body that is not of the right shape, told as pydantic tells it.

    `kind` is pydantic's name of the error, `where` the path ("body.messages").
    """
    error = {"type": kind, "loc": where, "msg": message, "input": _shown(value)}
    if context:
        error["ctx"] = context  # type: ignore[assignment]  # only printed
    return RenderRefused(
        f"1 validation error:\n  {error}", type="Bad Request", param=where
    )


def missing(where: str, body: Mapping[str, object]) -> RenderRefused:
    """A required field is not there."""
    return not_valid("missing", where, "Field required", body)


def unknown_model(model: object, known: Sequence[str]) -> RenderRefused:
    """The model is not served here."""
    return RenderRefused(
        f"The model `{model}` does not exist. Valid aliases: {', '.join(known)}.",
        status=404,
        type="NotFoundError",
        param="model",
    )


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"<dict of {len(value)} items>"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"<list of {len(value)} items>"
    return str(value)[:SHOWN_CHARACTERS]
