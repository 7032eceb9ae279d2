"""A chat or completions body, checked as vLLM checks it.

Unknown fields are accepted and ignored. Rendering is not done here.
"""

import secrets
from collections.abc import Mapping

from simworker.errors import ApiError, not_valid
from simworker.request import Body, Call
from simworker.vllm import fields
from simworker.vllm.errors import bad_value
from simworker.vllm.fields import is_id


def chat_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a chat body. Raises ApiError."""
    _check_messages(body)
    limit = body.get("max_completion_tokens")
    call = _call(
        body, headers, "max_tokens" if limit is None else "max_completion_tokens"
    )
    _check_common(body, call, max_model_len)
    if body.get("chat_template") is not None:
        raise ApiError(
            "Chat template is passed with request, but --trust-request-chat-template "
            "is not set. Refused request with untrusted chat template."
        )
    _check_tools(body)
    if body.get("top_logprobs") and not body.get("logprobs"):
        message = "when using `top_logprobs`, `logprobs` must be set to true."
        raise bad_value(message, "top_logprobs")
    if not body["messages"] and call.prompt_ids is None:
        raise ApiError("Cannot apply chat template to an empty conversation")
    return call


def completion_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a completions body; 16 tokens unless it says otherwise. Raises ApiError."""
    _check_prompt(body.get("prompt"))
    call = _call({"max_tokens": 16, **body}, headers, "max_tokens")
    _check_common(body, call, max_model_len)
    return call


def _call(body: Body, headers: Mapping[str, str], limit: str) -> Call:
    request_id = headers.get("X-Request-Id") or body.get("request_id")
    stream_options = fields.record(body, "stream_options")
    transfer = fields.record(body, "kv_transfer_params")
    xargs = fields.record(body, "vllm_xargs")
    choices = fields.integer(body, "n")
    return Call(
        body=body,
        request_id=str(request_id or secrets.token_hex(8)),
        model=fields.text(body, "model"),
        choices=1 if choices is None else choices,
        max_tokens=fields.integer(body, limit),
        stream=fields.flag(body, "stream"),
        include_usage=fields.flag(stream_options, "include_usage"),
        continuous_usage=fields.flag(stream_options, "continuous_usage_stats"),
        return_prompt_ids=fields.flag(body, "return_token_ids"),
        return_token_ids=fields.flag(body, "return_token_ids"),
        logprobs=body.get("logprobs") not in (None, False),
        seed=fields.integer(body, "seed") or 0,
        stop=fields.texts(body, "stop"),
        stop_token_ids=fields.ids(body, "stop_token_ids"),
        include_stop=fields.flag(body, "include_stop_str_in_output"),
        ignore_eos=fields.flag(body, "ignore_eos"),
        salt=fields.text(body, "cache_salt"),
        prompt_ids=fields.forwarded_ids(transfer),
        read_cache=body.get("prompt_logprobs") is None,
        report_hits=xargs.get("kv_cache_report_mode") == "full",
        rank=rank_of(headers),
    )


def rank_of(headers: Mapping[str, str]) -> int | None:
    """What is no integer is ignored."""
    asked = headers.get("X-data-parallel-rank", "").strip()
    return int(asked) if asked.lstrip("-").isdecimal() else None


def _check_messages(body: Body) -> None:
    if "messages" not in body:
        raise not_valid("missing", "body.messages", "Field required", body)
    messages = body["messages"]
    if not isinstance(messages, list):
        message = "Input should be a valid list"
        raise not_valid("list_type", "body.messages", message, messages)
    for number, message in enumerate(messages):
        where = f"body.messages.{number}"
        if not isinstance(message, dict):
            text = "Input should be a valid dictionary"
            raise not_valid("dict_type", where, text, message)
        if not isinstance(message.get("role"), str):
            raise not_valid("missing", f"{where}.role", "Field required", message)
        if message["role"] in ("user", "system", "developer"):
            _check_content(message.get("content"), f"{where}.content")


def _check_content(content: object, where: str) -> None:
    if not isinstance(content, str | list):
        text = "Input should be a valid string"
        raise not_valid("string_type", where, text, content)


def _check_prompt(prompt: object) -> None:
    if prompt is None or prompt in ("", []):
        message = "Either prompt or prompt_embeds must be provided and non-empty."
        raise bad_value(message, "prompt")
    if isinstance(prompt, str):
        return
    items = prompt if isinstance(prompt, list) else [prompt]
    is_prompts = all(isinstance(item, str) for item in items) or all(
        isinstance(item, list) and item and all(map(is_id, item)) for item in items
    )
    if not isinstance(prompt, list) or not (is_prompts or all(map(is_id, items))):
        text = "Input should be a valid string"
        raise not_valid("string_type", "body.prompt", text, prompt)


def _check_common(body: Body, call: Call, max_model_len: int) -> None:
    if call.salt == "":
        message = "Parameter 'cache_salt' must be a non-empty string if provided."
        raise bad_value(message, "cache_salt")
    if body.get("stream_options") is not None and not call.stream:
        message = "Stream options can only be defined when `stream=True`."
        raise bad_value(message, "stream_options")
    _check_numbers(body, call, max_model_len)


def _check_numbers(body: Body, call: Call, max_model_len: int) -> None:
    wanted = call.max_tokens
    if wanted is not None and wanted < 1:
        message = f"max_tokens must be at least 1, got {wanted}."
        raise bad_value(message, "max_tokens", value=wanted)
    if wanted is not None and wanted > max_model_len:
        message = (
            f"max_tokens={wanted} cannot be greater than "
            f"max_model_len={max_model_len}. Please request fewer output tokens."
        )
        raise bad_value(message, "max_tokens", value=wanted)
    if not 1 <= call.choices <= 128:
        raise bad_value(f"n must be at least 1, got {call.choices}.", "n")
    temperature = fields.number(body, "temperature")
    if temperature is not None and temperature < 0:
        message = f"temperature must be non-negative, got {temperature}."
        raise bad_value(message, "temperature", value=temperature)


def _check_tools(body: Body) -> None:
    choice = body.get("tool_choice")
    if choice not in (None, "none") and not body.get("tools"):
        message = "When using `tool_choice`, `tools` must be set."
        raise bad_value(message, "tool_choice")
