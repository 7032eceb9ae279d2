"""The wire form of a rendered request.

The union of what two families answer: TensorRT-LLM's rendered request and vLLM's
GenerateRequest, which its `/inference/v1/generate` takes as it is. A dialect narrows
the keys; the values are the same.
"""

from collections.abc import Mapping, Sequence

from render.body import Json
from render.refused import Dialect

SCHEMA_VERSION = 1
TRTLLM_KEYS = (
    "schema_version",
    "kind",
    "request_id",
    "token_ids",
    "model",
    "cache_salt",
    "reasoning_ended",
    "reasoning_parser_kwargs",
    "request",
)
VLLM_KEYS = (
    "request_id",
    "token_ids",
    "token_offsets",
    "features",
    "content_parts",
    "sampling_params",
    "model",
    "reasoning_ended",
    "reasoning_parser_kwargs",
    "return_token_ids",
    "output_mode",
    "stream",
    "stream_options",
    "cache_salt",
    "priority",
    "kv_transfer_params",
    "ec_transfer_params",
)
KEYS: Mapping[Dialect, tuple[str, ...]] = {
    "union": (*TRTLLM_KEYS, *(key for key in VLLM_KEYS if key not in TRTLLM_KEYS)),
    "trtllm": TRTLLM_KEYS,
    "vllm": VLLM_KEYS,
}


def rendered_request(
    kind: str,
    *,
    request_id: str,
    token_ids: Sequence[int],
    token_offsets: list[tuple[int, int]] | None,
    sampling_params: Json,
    fields: Json,
    reasoning_ended: bool | None,
    reasoning_parser_kwargs: Json | None,
    request: Json,
    dialect: Dialect,
) -> Json:
    """The answer for one prompt: `kind` is "chat", "completion" or "response".

    `fields` are the body's typed fields, `request` is the body itself.
    """
    stream, response = bool(fields["stream"]), kind == "response"
    every: Json = {
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "request_id": request_id,
        "token_ids": token_ids,
        "model": fields["model"],
        "cache_salt": fields["cache_salt"],
        "reasoning_ended": reasoning_ended,
        "reasoning_parser_kwargs": reasoning_parser_kwargs,
        "request": request,
        "token_offsets": token_offsets,
        "features": None,
        "content_parts": None,
        "sampling_params": sampling_params,
        "return_token_ids": None,  # the answer is ids in any case
        "output_mode": "tokens",
        "stream": stream,
        "stream_options": _stream_options(fields.get("stream_options"))
        if stream
        else None,
        "priority": fields["priority"],
        # vLLM 0.32 leaves those of other requests in `extra_args` only.
        "kv_transfer_params": fields["kv_transfer_params"] if response else None,
        "ec_transfer_params": fields["ec_transfer_params"] if response else None,
    }
    return {key: every[key] for key in KEYS[dialect]}


def _stream_options(options: Json | None) -> Json | None:
    if options is None:
        return None
    return {"include_usage": False, "continuous_usage_stats": False, **options}
