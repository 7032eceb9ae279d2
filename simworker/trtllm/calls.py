"""A chat or completions body, checked as TensorRT-LLM checks it: strictly."""

import base64
import binascii
import secrets
from collections.abc import Mapping
from typing import Any

from kvindex.blocks import unpack_ids
from render.body import Json
from simworker.errors import ApiError, not_valid
from simworker.request import Body, Call
from simworker.trtllm import fields as tables

MAX_CHOICES = 128


def chat_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a chat body; `messages` are needed also where ids come. RenderRefused."""
    fields = tables.read(body, tables.CHAT, ("messages", "model"))
    _check_messages(fields["messages"])
    if fields["chat_template"] is not None:
        raise ApiError(
            "chat_template cannot be supplied per request unless request-level chat "
            "templates are enabled at server startup."
        )
    limit = fields["max_tokens"]
    return _call(
        body,
        fields,
        max_tokens=fields["max_completion_tokens"] if limit is None else limit,
        salt=fields["cache_salt"],
        prompt_ids=_forwarded_ids(fields),
        return_token_ids=False,
    )


def completion_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a completions body; it has no limit of its own. RenderRefused."""
    fields = tables.read(body, tables.COMPLETION, ("model", "prompt"))
    if fields["suffix"]:
        text = "Value error, suffix is not supported"
        raise not_valid("value_error", "body", text, body)
    return _call(
        body,
        fields,
        max_tokens=fields["max_tokens"],
        return_token_ids=not fields["detokenize"],
    )


def _call(body: Body, fields: Json, *, max_tokens: int | None, **more: Any) -> Call:
    if max_tokens is not None and max_tokens < 1:
        raise ApiError(f"max_tokens must be greater than 0, got {max_tokens}")
    if not 1 <= fields["n"] <= MAX_CHOICES:
        raise ApiError(f"n must be from 1 to {MAX_CHOICES}, got {fields['n']}")
    options, stop = tables.stream_options(fields), fields["stop"] or ()
    stream = bool(fields["stream"])
    return Call(
        body=body,
        # A stream is named by the executor's request number.
        request_id=str(secrets.randbelow(1 << 31)) if stream else secrets.token_hex(16),
        model=fields["model"],
        choices=fields["n"],
        max_tokens=max_tokens,
        stream=stream,
        include_usage=bool(options["include_usage"]),
        continuous_usage=bool(
            options["include_usage"] and options["continuous_usage_stats"]
        ),
        logprobs=bool(fields["logprobs"]),
        seed=fields["seed"] or 0,
        stop=(stop,) if isinstance(stop, str) else tuple(filter(None, stop)),
        stop_token_ids=tuple(fields["stop_token_ids"] or ()),
        include_stop=bool(fields["include_stop_str_in_output"]),
        ignore_eos=bool(fields["ignore_eos"]),
        **_adapter(fields["lora_request"]),
        **more,
    )


def _adapter(asked: Json | None) -> dict[str, Any]:
    """The adapter of a `lora_request`; the engine wants a name and a number."""
    if asked is None:
        return {}
    name, number = asked.get("lora_name"), asked.get("lora_int_id")
    for key, value, kind in (
        ("lora_name", name, str),
        ("lora_int_id", number, int),
    ):
        if not isinstance(value, kind):
            where = f"body.lora_request.{key}"
            raise not_valid("missing", where, "Field required", asked)
    return {"adapter": name, "adapter_id": number}


def _check_messages(messages: list[Json]) -> None:
    for index, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            where = f"body.messages.{index}.role"
            raise not_valid("missing", where, "Field required", message)


def _forwarded_ids(fields: Json) -> list[int] | None:
    """Ids that replace template and tokenizer, as a list or as base64 of int32."""
    ids, encoded = fields["prompt_token_ids"], fields["prompt_token_ids_b64"]
    if ids is None and encoded is None:
        return None
    if isinstance(fields["tool_choice"], dict):
        raise ApiError(
            "A named function tool_choice is not supported alongside prompt_token_ids."
        )
    if ids is None:
        try:
            ids = unpack_ids(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError) as error:
            raise ApiError(f"prompt_token_ids_b64: {error}") from error
    if any(token_id < 0 for token_id in ids):
        raise ApiError("Token ID out of range (1 requests)")
    return list(ids)
