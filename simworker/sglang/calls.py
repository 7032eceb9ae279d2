"""A chat or completions body, checked as SGLang checks it. Unknown fields pass."""

import secrets
from collections.abc import Mapping
from typing import Any

from render.body import Json
from render.fields import read_fields
from simworker.errors import ApiError, not_valid
from simworker.request import Body, Call
from simworker.sglang import fields as tables

MAX_CHOICES = 128
ROLES = (
    "system", "developer", "user", "assistant", "tool", "function",
    "latest_reminder",
)  # fmt: skip


def chat_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a chat body; its `input_ids` replace rendering. Raises RenderRefused."""
    if "messages" not in body:
        raise not_valid("missing", "body.messages", "Field required", body)
    fields = read_fields(body, tables.CHAT)
    _check_messages(fields["messages"])
    _check_tools(fields)
    if fields["stream"]:
        for name in ("return_prompt_token_ids", "return_meta_info"):
            if fields[name]:
                raise ApiError(
                    f"{name} is not supported with streaming. Please set stream=false "
                    f"when using {name}=true."
                )
    ids = fields["input_ids"]
    if ids is not None and any(token_id < 0 for token_id in ids):
        raise ApiError("The input_ids contains negative values.")
    return _call(
        body,
        fields,
        headers,
        max_tokens=fields["max_completion_tokens"] or fields["max_tokens"] or None,
        prompt_ids=ids,
        return_prompt_ids=(
            fields["return_prompt_token_ids"] or fields["return_token_ids"]
        ),
        logprobs=fields["logprobs"],
    )


def completion_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a completions body; 16 tokens unless it says otherwise. RenderRefused."""
    if "prompt" not in body:
        raise not_valid("missing", "body.prompt", "Field required", body)
    fields = read_fields(body, tables.COMPLETION)
    prompt, wanted = fields["prompt"], fields["max_tokens"]
    if not prompt or (isinstance(prompt, list) and not any(prompt)):
        # A prompt of the id 0 alone is none to the engine either.
        raise ApiError("Prompt cannot be empty")
    if wanted <= 0:
        text = "Value error, max_tokens must be positive"
        raise not_valid("value_error", "body.max_tokens", text, wanted)
    return _call(
        body,
        fields,
        headers,
        max_tokens=wanted,
        return_prompt_ids=fields["return_token_ids"],
        logprobs=fields["logprobs"] is not None,
    )


def _call(
    body: Body,
    fields: Json,
    headers: Mapping[str, str],
    *,
    max_tokens: int | None,
    **more: Any,
) -> Call:
    rank = _rank(fields, headers)
    if max_tokens is not None and max_tokens < 1:
        raise ApiError(f"max_new_tokens must be at least 0, got {max_tokens}.")
    if not 1 <= fields["n"] <= MAX_CHOICES:
        raise ApiError(f"n must be from 1 to {MAX_CHOICES}, got {fields['n']}.")
    options = read_fields(fields["stream_options"] or {}, tables.STREAM_OPTIONS)
    rid, stop = fields["rid"], fields["stop"] or ()
    return Call(
        body=body,
        request_id=rid if isinstance(rid, str) and rid else secrets.token_hex(16),
        model=fields["model"],
        choices=fields["n"],
        max_tokens=max_tokens,
        stream=fields["stream"],
        include_usage=bool(options["include_usage"]),
        continuous_usage=bool(options["continuous_usage_stats"]),
        return_token_ids=fields["return_token_ids"],
        seed=fields["seed"] or 0,
        stop=(stop,) if isinstance(stop, str) else tuple(filter(None, stop)),
        stop_token_ids=tuple(fields["stop_token_ids"] or ()),
        include_stop=fields["no_stop_trim"],
        ignore_eos=fields["ignore_eos"],
        **told_apart(fields),
        rank=rank,
        **more,
    )


def _check_messages(messages: list[Json]) -> None:
    if not messages:
        raise ApiError("Messages cannot be empty.")
    for index, message in enumerate(messages):
        role = message.get("role")
        if not isinstance(role, str) or role.lower() not in ROLES:
            where = f"body.messages.{index}.role"
            raise not_valid("literal_error", where, "Input should be a role", role)


def _check_tools(fields: Json) -> None:
    choice, tools = fields["tool_choice"], fields["tools"]
    if choice == "required" and not tools:
        raise ApiError("Tools cannot be empty if tool choice is set to required.")
    if isinstance(choice, dict):
        if not tools:
            raise ApiError(
                "Tools cannot be empty if tool choice is set to a specific tool."
            )
        name = _function_name(choice)
        if all(_function_name(tool) != name for tool in tools):
            raise ApiError(f"Tool '{name}' not found in tools list.")


def _function_name(tool: Json) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else None


def _rank(fields: Json, headers: Mapping[str, str]) -> int | None:
    """The rank that was asked for; whether there is one is for others to say."""
    rank = fields["routed_dp_rank"]
    if rank is None:
        rank = fields["data_parallel_rank"]
    header = headers.get("X-Data-Parallel-Rank")
    if header is not None:
        if not header.strip().lstrip("+-").isdecimal():
            raise ApiError(f"Invalid X-Data-Parallel-Rank header: {header!r}")
        return int(header)
    return None if rank is None else int(rank)


def told_apart(fields: Json) -> dict[str, Any]:
    """What keeps the blocks of a body from those of others, besides its model."""
    names = {"salt": "cache_salt", "extra_key": "extra_key", "adapter": "lora_path"}
    given = {key: fields.get(name) for key, name in names.items()}
    return {k: v if isinstance(v, str) and v else None for k, v in given.items()}
