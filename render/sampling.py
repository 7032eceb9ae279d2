"""`sampling_params` of a rendered request: what vLLM 0.32 makes of the body's fields.

Written as the engine writes its own record: fields that are as the engine has them by
default are left out, except those the endpoint sets itself. The same limits hold.
"""

import math
from collections.abc import Callable, Mapping

from render.body import Json
from render.refused import RenderRefused, bad_value
from render.structured import chat_constraint, constraint, responses_constraint

GREEDY_BELOW = 1e-5  # temperature
MAX_CHOICES = 16384
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
    "seed": None,
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
    record: Json = {
        **_shape(values, fields),
        **_stop(fields),
        "max_tokens": max_tokens,
        **{
            name: fields[name]
            for name, default in ENGINE_DEFAULTS.items()
            if fields.get(name, default) != default
        },
        "logprobs": logprobs,
        "output_kind": 1 if fields["stream"] else 2,  # pieces, or the whole
        "skip_clone": True,
        "structured_outputs": structured_outputs,
        "logit_bias": _logit_bias(fields.get("logit_bias")),
        "allowed_token_ids": fields.get("allowed_token_ids"),
        "extra_args": extra_args,
        "bad_words": list(fields.get("bad_words") or []),
        "skip_reading_prefix_cache": fields.get("prompt_logprobs") is not None,
        "thinking_token_budget": fields.get("thinking_token_budget"),
        "repetition_detection": fields.get("repetition_detection"),
        "stream_interval": fields.get("stream_interval"),
    }
    return {name: value for name, value in record.items() if value is not None}


def _shape(values: Json, fields: Json) -> Json:
    """Penalties and probabilities; a greedy choice has no use for most of them."""
    top_k = max(fields.get("top_k") or 0, 0)
    if values["temperature"] >= GREEDY_BELOW:
        return {**values, "top_k": top_k or None}
    if (fields.get("n") or 1) > 1:
        n = fields["n"]
        raise bad_value(f"n must be 1 when using greedy sampling, got {n}.", "n", n)
    return {name: v for name, v in values.items() if name not in ("top_p", "min_p")}


def _stop(fields: Json) -> Json:
    stop = fields.get("stop") or []
    texts = [stop] if isinstance(stop, str) else stop
    # As much text is held back as may still turn into a stop text.
    held = (
        0 if fields["include_stop_str_in_output"] else max(map(len, texts), default=1)
    )
    return {
        "stop": texts,
        "stop_token_ids": fields.get("stop_token_ids") or [],
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


def responses_sampling(fields: Json, *, max_tokens: int | None, parsed: bool) -> Json:
    """Those of a response."""
    return sampling_params(
        _for_parser(fields, parsed),
        max_tokens=max_tokens,
        structured_outputs=responses_constraint(fields),
        extra_args=extra_args(fields),
    )


def _for_parser(fields: Json, parsed: bool) -> Json:
    # A parser reads the marks, which may be special tokens.
    return {**fields, "skip_special_tokens": False} if parsed else fields


def extra_args(fields: Json) -> Json:
    """Fields that travel in `extra_args`; forwarded ids are the prompt, so not they."""
    extra = dict(fields.get("vllm_xargs") or {})
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
    for token_id, bias in given.items():
        known = token_id.isdecimal() and isinstance(bias, int | float)
        if not known or isinstance(bias, bool):
            raise bad_value(
                "logit_bias maps token ids to numbers.", "logit_bias", token_id[:40]
            )
    return {token_id: min(100.0, max(-100.0, bias)) for token_id, bias in given.items()}


def _check_ranges(
    values: Json, fields: Json, max_tokens: int | None, logprobs: int | None
) -> None:
    for name, allowed, words in RANGES:
        if not (math.isfinite(values[name]) and allowed(values[name])):
            value = values[name]
            raise bad_value(f"{name} must be {words}, got {value}.", name, value)
    top_k = fields.get("top_k")
    if top_k is not None and top_k < -1:
        raise bad_value(
            f"top_k must be 0 (disable), or at least 1, got {top_k}.", "top_k", top_k
        )
    n = fields.get("n")
    if n is not None and not 1 <= n <= MAX_CHOICES:
        bound = "at least 1" if n < 1 else f"at most {MAX_CHOICES}"
        raise bad_value(f"n must be {bound}, got {n}.", "n", n)
    if max_tokens is not None and max_tokens < 1:
        raise bad_value(
            f"max_tokens must be at least 1, got {max_tokens}.",
            "max_tokens",
            max_tokens,
        )
    _check_min_tokens(fields.get("min_tokens") or 0, max_tokens)
    if logprobs is not None and logprobs < -1:
        words = f"logprobs must be non-negative or -1, got {logprobs}."
        raise bad_value(words, "logprobs", logprobs)
    stop = fields.get("stop")
    if isinstance(stop, list) and "" in stop:
        raise bad_value("stop cannot contain an empty string.", "stop")


def _check_min_tokens(min_tokens: int, max_tokens: int | None) -> None:
    refusal: RenderRefused | None = None
    if min_tokens < 0:
        words = "greater than or equal to 0"
        refusal = bad_value(
            f"min_tokens must be {words}, got {min_tokens}.", "min_tokens", min_tokens
        )
    elif max_tokens is not None and min_tokens > max_tokens:
        words = f"less than or equal to max_tokens={max_tokens}"
        refusal = bad_value(
            f"min_tokens must be {words}, got {min_tokens}.", "min_tokens", min_tokens
        )
    if refusal is not None:
        raise refusal


RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("presence_penalty", lambda x: -2 <= x <= 2, "in [-2, 2]"),
    ("frequency_penalty", lambda x: -2 <= x <= 2, "in [-2, 2]"),
    ("repetition_penalty", lambda x: x > 0, "greater than zero"),
    ("temperature", lambda x: x >= 0, "non-negative"),
    ("top_p", lambda x: 0 < x <= 1, "in (0, 1]"),
    ("min_p", lambda x: 0 <= x <= 1, "in [0, 1]"),
)
