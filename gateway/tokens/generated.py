"""What a worker's generate route answers, read and checked.

Chunks of a stream come by the token, so what nearly all of them have is read in one go;
the rest, and whole answers, go the way of the derender routes.
"""

from typing import Annotated, Any

import msgspec

from gateway.errors import MalformedAnswer
from gateway.tokens import logprobs
from render import RenderRefused
from render.body import Json
from render.derender_request import MAX_ID, read_generated

_Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Choice(msgspec.Struct):
    index: _Count
    token_ids: list[_Id] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: dict[str, Any] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: dict[str, Any] | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | msgspec.UnsetType = msgspec.UNSET
    usage: _Usage | None = None
    error: Any = None


class Chunk(msgspec.Struct, frozen=True):
    """One event of a stream: choices, as the derenderer takes them, and the usage.

    `error`: it is none, but says what broke the stream.
    """

    choices: list[Json]
    usage: Json | None = None
    error: bool = False


def read_chunk(data: bytes, show: logprobs.Shown) -> Chunk:
    """An event's data; raises MalformedAnswer. `show` says how many alternatives."""
    try:
        chunk = msgspec.json.decode(data, type=_Chunk)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAnswer(f"the worker's answer: {_place(error)}") from None
    if chunk.error is not None:
        return Chunk([], error=True)
    if chunk.choices is msgspec.UNSET:
        raise MalformedAnswer("the worker's answer has no choices")
    usage = msgspec.structs.asdict(chunk.usage) if chunk.usage is not None else None
    if any(choice.logprobs is not None for choice in chunk.choices):
        return Chunk(read_whole(decoded(data), show, stream=True)["choices"], usage)
    return Chunk([msgspec.structs.asdict(choice) for choice in chunk.choices], usage)


def read_whole(response: Json, show: logprobs.Shown, *, stream: bool = False) -> Json:
    """An answer with the alternatives that are shown; raises MalformedAnswer."""
    given = response.get("choices")
    if isinstance(given, list):
        choices = [
            logprobs.shown(one, show) if isinstance(one, dict) else one for one in given
        ]
        response = {**response, "choices": choices}
    try:
        return read_generated(response, "generate_response", stream=stream)
    except RenderRefused as refused:
        place = refused.param or "a field"
        text = f"the worker's answer: {place} is not as it should be"
        raise MalformedAnswer(text) from None


def decoded(data: bytes) -> Json:
    """A JSON object of the worker's; raises MalformedAnswer."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedAnswer("the worker's answer is no JSON") from None
    if not isinstance(value, dict):
        raise MalformedAnswer("the worker's answer is no object")
    return value


def _place(error: Exception) -> str:
    """Where it is wrong; not what stands there."""
    if not isinstance(error, msgspec.ValidationError):
        return "no JSON"
    _, found, place = str(error).rpartition("`$")
    return f"{place.rstrip('`') if found else 'all of it'} is not as it should be"
