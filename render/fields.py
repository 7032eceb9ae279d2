"""Fields of a request body, typed, and read as leniently as vLLM 0.32 reads them.

A table names the fields a route knows; all others are let pass, as vLLM does.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from render.body import FLAGS, Json
from render.refused import RenderRefused, not_valid

Kind = Literal["flag", "integer", "number", "text", "object", "list", "texts", "any"]
DEFAULT_MAX_TOKENS = 16
INT64 = (-(2**63), 2**63 - 1)


class Field(msgspec.Struct, frozen=True):
    """One field. Bounds are inclusive and hold for the length of a text.

    `items` is the kind of a list's items, `most` how many there may be.
    """

    kind: Kind
    default: Any = None
    nullable: bool = True
    items: Kind = "any"
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    most: int | None = None


Table = Mapping[str, Field]


def read_fields(body: Mapping[str, object], table: Table, within: str = "body") -> Json:
    """The fields of the table by name, defaults filled in; raises RenderRefused."""
    return {name: _read(body, name, field, within) for name, field in table.items()}


def read_values(name: str, given: Mapping[str, object], field: Field) -> Json:
    """An object whose values are all of one kind; raises RenderRefused."""
    return {k: _converted(v, field, f"body.{name}.{k}") for k, v in given.items()}


def _read(body: Mapping[str, object], name: str, field: Field, within: str) -> object:
    if name not in body:
        return field.default
    value = body[name]
    if value is None and field.nullable:
        return None
    return _converted(value, field, f"{within}.{name}")


def _converted(value: object, field: Field, where: str) -> object:
    if field.kind == "list" or (field.kind == "texts" and not isinstance(value, str)):
        return _list(value, field, where)
    kind = "text" if field.kind == "texts" else field.kind
    converted = READERS[kind](value, where)
    if field.choices and converted not in field.choices:
        expected = " or ".join(f"'{choice}'" for choice in field.choices)
        raise not_valid("literal_error", where, f"Input should be {expected}", value)
    _check_bounds(converted, field, where)
    return converted


def _list(value: object, field: Field, where: str) -> list[object]:
    if not isinstance(value, list):
        raise not_valid("list_type", where, "Input should be a valid list", value)
    if field.most is not None and len(value) > field.most:
        message = (
            f"List should have at most {field.most} items after validation, "
            f"not {len(value)}"
        )
        raise not_valid("too_long", where, message, value)
    item = Field("text" if field.kind == "texts" else field.items, nullable=False)
    return [_converted(v, item, f"{where}.{i}") for i, v in enumerate(value)]


def _check_bounds(value: object, field: Field, where: str) -> None:
    size = len(value) if isinstance(value, str) else value
    if not isinstance(size, int | float):
        return
    if field.low is not None and size < field.low:
        message = f"Input should be greater than or equal to {field.low}"
        raise not_valid("greater_than_equal", where, message, value, ge=field.low)
    if field.high is not None and size > field.high:
        message = f"Input should be less than or equal to {field.high}"
        raise not_valid("less_than_equal", where, message, value, le=field.high)


def _flag(value: object, where: str) -> bool:
    if isinstance(value, str) and value.lower() in FLAGS:
        return FLAGS[value.lower()]
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise _wrong("bool", where, "boolean", value)


def _integer(value: object, where: str) -> int:
    try:
        if isinstance(value, int) or (
            isinstance(value, float) and value.is_integer() and abs(value) < 2**63
        ):
            return int(value)
        if isinstance(value, str):
            return int(value)
    except ValueError:
        pass  # refused below
    raise _wrong("int", where, "integer", value)


def _number(value: object, where: str) -> float:
    try:
        if isinstance(value, bool | int | float | str):
            return float(value)
    except (ValueError, OverflowError):
        pass  # refused below
    raise _wrong("float", where, "number", value)


def _text(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    raise not_valid("string_type", where, "Input should be a valid string", value)


def _object(value: object, where: str) -> Json:
    if isinstance(value, dict):
        return value
    raise not_valid("dict_type", where, "Input should be a valid dictionary", value)


def _any(value: object, where: str) -> object:
    return value


def _wrong(kind: str, where: str, noun: str, value: object) -> RenderRefused:
    how = "parsing" if isinstance(value, str) else "type"
    return not_valid(f"{kind}_{how}", where, f"Input should be a valid {noun}", value)


READERS: Mapping[str, Any] = {
    "flag": _flag,
    "integer": _integer,
    "number": _number,
    "text": _text,
    "object": _object,
    "any": _any,
}

_FLAG_OFF = Field("flag", False, nullable=False)
_FLAG_ON = Field("flag", True, nullable=False)
_INT64 = Field("integer", None, low=INT64[0], high=INT64[1])

SAMPLING: Table = {
    "presence_penalty": Field("number"),
    "frequency_penalty": Field("number"),
    "repetition_penalty": Field("number"),
    "temperature": Field("number"),
    "top_p": Field("number"),
    "top_k": Field("integer"),
    "min_p": Field("number"),
    "seed": _INT64,
    "stop": Field("texts", most=4),
    "stop_token_ids": Field("list", items="integer"),
    "ignore_eos": _FLAG_OFF,
    "skip_special_tokens": _FLAG_ON,
    "include_stop_str_in_output": _FLAG_OFF,
    "structured_outputs": Field("object"),
    "vllm_xargs": Field("object"),
    "kv_transfer_params": Field("object"),
    "ec_transfer_params": Field("object"),
    "stream": Field("flag", False),
    "priority": Field("integer", 0, nullable=False, low=INT64[0], high=INT64[1]),
    "cache_salt": Field("text", low=1, high=1024),
    "request_id": Field("text", nullable=False),
    "session_id": Field("text"),
    "model": Field("text"),
    "user": Field("text"),
    "logit_bias": Field("object"),
}
TOKENIZING = ("truncate_prompt_tokens", "truncation_side", "add_special_tokens")
_GENERATION: Table = {
    **SAMPLING,
    "n": Field("integer", 1),
    "min_tokens": Field("integer", 0, nullable=False),
    "max_tokens": Field("integer"),
    "prompt_logprobs": Field("integer"),
    "logprob_token_ids": Field("list", items="integer"),
    "allowed_token_ids": Field("list", items="integer"),
    "bad_words": Field("list", (), nullable=False, items="text"),
    "spaces_between_special_tokens": _FLAG_ON,
    "thinking_token_budget": Field("integer"),
    "repetition_detection": Field("object"),
    "stream_interval": Field("integer", low=1),
    "stream_options": Field("object"),
    "response_format": Field("object"),
    "use_beam_search": _FLAG_OFF,
    "length_penalty": Field("number", 1.0, nullable=False),
    "truncate_prompt_tokens": Field("integer", low=-1, high=INT64[1]),
    "truncation_side": Field("text", choices=("left", "right")),
    "return_token_offsets": Field("flag", False),
    "return_token_ids": Field("flag"),
    "return_tokens_as_token_ids": Field("flag"),
    "mm_payload": Field("text", "tensors", False, choices=("tensors", "none")),
}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TEMPLATE: Table = {
    "add_generation_prompt": _FLAG_ON,
    "continue_final_message": _FLAG_OFF,
    "add_special_tokens": _FLAG_OFF,
    "chat_template": Field("text"),
    "chat_template_kwargs": Field("object"),
    "media_io_kwargs": Field("object"),
    "mm_processor_kwargs": Field("object"),
    "tools": Field("list", items="object"),
    "model": Field("text"),
}
CHAT: Table = {
    **_GENERATION,
    **TEMPLATE,
    "logprobs": Field("flag", False),
    "top_logprobs": Field("integer", 0),
    "max_completion_tokens": Field("integer"),
    "reasoning_effort": Field("text", choices=EFFORTS),
    "include_reasoning": _FLAG_ON,
    "parallel_tool_calls": Field("flag", True),
    "documents": Field("list", items="object"),
    "echo": _FLAG_OFF,
    "return_prompt_text": Field("flag"),
    "tool_choice": Field("any", "auto"),
}
COMPLETION: Table = {
    **_GENERATION,
    "n": Field("integer", 1, nullable=False),
    "max_tokens": Field("integer", DEFAULT_MAX_TOKENS),
    "logprobs": Field("integer"),
    "echo": Field("flag", False),
    "suffix": Field("text"),
    "add_special_tokens": _FLAG_ON,
}
_PENALTY = Field("number", low=-2, high=2)
TIERS = ("auto", "default", "flex", "scale", "priority")
RESPONSES: Table = {
    **SAMPLING,
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "service_tier": Field("text", "auto", False, choices=TIERS),
    "mm_payload": Field("text", "tensors", False, choices=("tensors", "none")),
    "instructions": Field("text"),
    "include": Field("list", items="text"),
    "prompt_cache_key": Field("text"),
    "max_output_tokens": Field("integer"),
    "max_tool_calls": Field("integer"),
    "metadata": Field("object"),
    "parallel_tool_calls": Field("flag", True),
    "previous_response_id": Field("text"),
    "reasoning": Field("object"),
    "include_reasoning": _FLAG_ON,
    "background": Field("flag", False),
    "store": Field("flag", True),
    "text": Field("object"),
    "tools": Field("list", (), nullable=False, items="object"),
    "top_logprobs": Field("integer", 0),
    "truncation": Field("text", "disabled", choices=("auto", "disabled")),
    "chat_template_kwargs": Field("object"),
    "media_io_kwargs": Field("object"),
    "mm_processor_kwargs": Field("object"),
    "tool_choice": Field("any", "auto"),
}
TOKENIZE_CHAT: Table = {**TEMPLATE, "return_token_strs": Field("flag", False)}
TOKENIZE_TEXT: Table = {
    "model": Field("text"),
    "prompt": Field("text", nullable=False),
    "add_special_tokens": _FLAG_ON,
    "return_token_strs": Field("flag", False),
}
