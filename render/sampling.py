"""`sampling_params` of a rendered request: what vLLM 0.32 makes of the body's fields.

Written as the engine writes its own record: fields that are as the engine has them by
default are left out, except those the endpoint sets itself. The same limits hold.
"""

import math
from collections.abc import Callable, Mapping

from render.body import Json
from render.fields import DEFAULT_MAX_TOKENS, Field, read_fields, read_values
from render.refused import RenderRefused, bad_value, not_valid
from render.structured import chat_constraint, constraint, responses_constraint

LEAST_TEMPERATURE = 0.01  # of those above 0: colder ones overflow
MAX_CHOICES = 16384
INCLUDED_LOGPROBS = "message.output_text.logprobs"
REPETITION = ("max_pattern_size", "min_pattern_size", "min_count")
DEFAULTS: Mapping[str, float] = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
}
# Copied if not as the engine has them by default.
ENGINE_DEFAULTS: Mapping[str, object] = {
    "n": 1,
    "ignore_eos": False,
    "min_tokens": 0,
    "prompt_logprobs": None,
    "logprob_token_ids": None,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
}


def sampling_params(
    fields: Json,
    *,
    max_tokens: int | None,
    logprobs: int | None = None,
    structured_outputs: Json | None = None,
    extra_args: Json | None = None,
) -> Json:
    """The record for these fields (`fields.py`); raises RenderRefused.

    `max_tokens` is what is left to generate, None if nothing bounds it.
    """
    values = {
        name: default if fields.get(name) is None else fields[name]
        for name, default in DEFAULTS.items()
    }
    _check_ranges(values, fields, max_tokens, logprobs)
    if 0 < values["temperature"] < LEAST_TEMPERATURE:
        values["temperature"] = LEAST_TEMPERATURE
    record: Json = {
        **_shape(values, fields),
        **_stop(fields),
        "max_tokens": None if max_tokens == DEFAULT_MAX_TOKENS else max_tokens,
        **{
            name: fields[name]
            for name, default in ENGINE_DEFAULTS.items()
            if fields.get(name, default) not in (default, [])
        },
        "seed": _unless_minus_one(fields.get("seed")),
        "logprobs": logprobs,
        "output_kind": 1 if fields["stream"] else 2,  # pieces, or the whole
        "skip_clone": True,
        "structured_outputs": structured_outputs,
        "logit_bias": _logit_bias(fields.get("logit_bias")),
        "allowed_token_ids": fields.get("allowed_token_ids"),
        "extra_args": extra_args,
        "bad_words": list(dict.fromkeys(fields.get("bad_words") or [])),
        "skip_reading_prefix_cache": fields.get("prompt_logprobs") is not None,
        "thinking_token_budget": _unless_minus_one(fields.get("thinking_token_budget")),
        "repetition_detection": _repetition_detection(
            fields.get("repetition_detection")
        ),
        "stream_interval": fields.get("stream_interval"),
    }
    return {name: value for name, value in record.items() if value is not None}


def _shape(values: Json, fields: Json) -> Json:
    """Penalties and probabilities; a greedy choice has no use for most of them."""
    if values["temperature"] > 0:
        return {**values, "top_k": fields.get("top_k") or None}
    if (fields.get("n") or 1) > 1:
        n = fields["n"]
        raise RenderRefused(f"n must be 1 when using greedy sampling, got {n}.")
    return {name: v for name, v in values.items() if name not in ("top_p", "min_p")}


def _stop(fields: Json) -> Json:
    texts = _texts(fields.get("stop"))
    # As much text is held back as may still turn into a stop text.
    held = (
        0 if fields["include_stop_str_in_output"] else max(map(len, texts), default=1)
    )
    return {
        "stop": texts,
        "stop_token_ids": list(dict.fromkeys(fields.get("stop_token_ids") or [])),
        "output_text_buffer_length": held - 1 if held > 1 else None,
    }


def chat_sampling(
    fields: Json, *, max_tokens: int | None, parsed: bool, tool_call_parser: str | None
) -> Json:
    """Those of a chat; `parsed` is whether the answer is read by any parser."""
    if fields["echo"] and fields["prompt_logprobs"] is None:
        fields = {**fields, "prompt_logprobs": fields["top_logprobs"]}
    return sampling_params(
        _for_parser(fields, parsed),
        max_tokens=max_tokens,
        logprobs=(fields["top_logprobs"] or 0)
        if fields["logprobs"] and not fields["logprob_token_ids"]
        else None,
        structured_outputs=chat_constraint(fields, tool_call_parser),
        extra_args=extra_args(fields) or None,
    )


def completion_sampling(fields: Json, *, max_tokens: int | None) -> Json:
    """Those of a completion; no parser reads its answer."""
    if fields["echo"]:
        if fields["prompt_logprobs"] is None:
            fields = {**fields, "prompt_logprobs": fields["logprobs"]}
        max_tokens = max_tokens or 1  # only the prompt is wanted: one is generated
    return sampling_params(
        fields,
        max_tokens=max_tokens,
        logprobs=fields["logprobs"] if not fields["logprob_token_ids"] else None,
        structured_outputs=constraint(
            fields["structured_outputs"], fields["response_format"]
        ),
        extra_args=extra_args(fields) or None,
    )


def responses_sampling(
    fields: Json, *, max_tokens: int | None, parsed: bool, tool_call_parser: str | None
) -> Json:
    """Those of a response."""
    return sampling_params(
        _for_parser(fields, parsed),
        max_tokens=max_tokens,
        logprobs=fields["top_logprobs"]
        if INCLUDED_LOGPROBS in (fields["include"] or [])
        else None,
        structured_outputs=responses_constraint(fields, tool_call_parser),
        extra_args=extra_args(fields),
    )


def _for_parser(fields: Json, parsed: bool) -> Json:
    # A parser reads the marks, which may be special tokens.
    return {**fields, "skip_special_tokens": False} if parsed else fields


def extra_args(fields: Json) -> Json:
    """Fields that travel in `extra_args`; forwarded ids are the prompt, so not they."""
    extra = dict(fields.get("vllm_xargs") or {})
    for name, value in extra.items():
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str | int | float):
                where = f"body.vllm_xargs.{name}"
                words = "Input should be a valid string"
                raise not_valid("string_type", where, words, item)
    transfer = {
        name: value
        for name, value in (fields.get("kv_transfer_params") or {}).items()
        if name != "prompt_token_ids"
    }
    if transfer:
        extra["kv_transfer_params"] = transfer
    if fields.get("ec_transfer_params"):
        extra["ec_transfer_params"] = fields["ec_transfer_params"]
    return extra


def _logit_bias(given: Json | None) -> Json | None:
    """Bias by token id, within what the engine takes; raises RenderRefused."""
    if given is None:
        return None
    biases = read_values("logit_bias", given, Field("number", nullable=False))
    try:
        return {
            str(int(token_id)): min(100.0, max(-100.0, bias))
            for token_id, bias in biases.items()
        }
    except ValueError:
        words = "logit_bias contains key(s) that are no token ids."
        raise bad_value(words, "logit_bias", list(given)[:3]) from None


def _repetition_detection(given: Json | None) -> Json | None:
    if given is None:
        return None
    table = {name: Field("integer", 0, nullable=False) for name in REPETITION}
    found = read_fields(given, table, within="body.repetition_detection")
    longest, shortest, count = (found[name] for name in REPETITION)
    if longest < 0 or not 0 <= shortest <= longest:
        raise RenderRefused(
            "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= "
            "max_pattern_size. Set both to 0 to disable repetitive pattern detection."
        )
    if longest > 0 and count < 2:
        raise RenderRefused(
            "min_count must be >= 2 to detect repetitive patterns in engine output. If "
            "you do not wish to detect repetitive patterns, set max_pattern_size to 0."
        )
    return found


def _texts(stop: str | list[str] | None) -> list[str]:
    return [stop] if isinstance(stop, str) else stop or []


def _unless_minus_one(value: int | None) -> int | None:
    return None if value == -1 else value


def _check_ranges(
    values: Json, fields: Json, max_tokens: int | None, logprobs: int | None
) -> None:
    n = fields.get("n")
    if n is not None and not 1 <= n <= MAX_CHOICES:
        bound = "at least 1" if n < 1 else f"at most {MAX_CHOICES}"
        raise RenderRefused(f"n must be {bound}, got {n}.")
    given = {
        **values,
        "top_k": fields.get("top_k") or 0,
        "max_tokens": max_tokens,
        "min_tokens": fields.get("min_tokens") or 0,
        "logprobs": logprobs,
        "thinking_token_budget": fields.get("thinking_token_budget"),
    }
    for name, allowed, words, named in RANGES:
        value = given[name]
        if value is None or (math.isfinite(value) and allowed(value)):
            continue
        message = f"{name} must be {words}, got {value}."
        raise bad_value(message, name, value) if named else RenderRefused(message)
    min_tokens = given["min_tokens"]
    if max_tokens is not None and min_tokens > max_tokens:
        raise RenderRefused(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, "
            f"got {min_tokens}."
        )
    if "" in _texts(fields.get("stop")):
        raise RenderRefused("stop cannot contain an empty string.")
    if "" in (fields.get("bad_words") or []):
        raise RenderRefused("bad_words cannot contain an empty string.")


# What is allowed, in words, and whether the engine names the field in the error.
RANGES: tuple[tuple[str, Callable[[float], bool], str, bool], ...] = (
    ("thinking_token_budget", lambda x: x >= -1, "non-negative, or -1", True),
    ("presence_penalty", lambda x: -2 <= x <= 2, "in [-2, 2]", False),
    ("frequency_penalty", lambda x: -2 <= x <= 2, "in [-2, 2]", False),
    ("repetition_penalty", lambda x: x > 0, "greater than zero", False),
    ("temperature", lambda x: 0 <= x <= 2, "in [0, 2]", True),
    ("top_p", lambda x: 0 < x <= 1, "in (0, 1]", True),
    ("top_k", lambda x: x >= -1, "0 (disable), or at least 1", False),
    ("min_p", lambda x: 0 <= x <= 1, "in [0, 1]", False),
    ("max_tokens", lambda x: x >= 1, "at least 1", True),
    ("min_tokens", lambda x: x >= 0, "greater than or equal to 0", False),
    ("logprobs", lambda x: x >= -1, "non-negative or -1", True),
)
