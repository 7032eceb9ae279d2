"""The record of a response and the items in it, in the words of vLLM's own route."""

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from render.body import Json
from render.parsers.events import Call

TOOL_FIELDS = (
    "name", "parameters", "strict", "type", "allowed_callers", "async",
    "defer_loading", "description", "output_schema",
)  # fmt: skip
REASONING_FIELDS = ("context", "effort", "generate_summary", "mode", "summary")
TEXT_FIELDS = ("format", "verbosity")


def record(
    asked: Json, sampling: Json, *, id_: str, created: int, model: str
) -> dict[str, Any]:
    """A response as it begins; what comes of it is filled in later.

    `asked` are the request's fields in their types, `sampling` is what the engine got.
    """
    tools = [_filled(tool, TOOL_FIELDS) for tool in asked["tools"]]
    choice = asked["tool_choice"] or "auto"
    return {
        "id": id_,
        "created_at": created,
        "incomplete_details": None,
        "instructions": asked["instructions"],
        "metadata": asked["metadata"],
        "model": model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": asked["parallel_tool_calls"] is not False,
        "temperature": sampling["temperature"],
        "tool_choice": choice if tools else "none",
        "tools": tools,
        "top_p": sampling.get("top_p", 1.0),
        "background": False,
        "max_output_tokens": sampling.get("max_tokens"),
        "max_tool_calls": asked["max_tool_calls"],
        "previous_response_id": None,
        "prompt": None,
        "reasoning": _filled(asked["reasoning"], REASONING_FIELDS),
        "service_tier": asked["service_tier"],
        "status": "in_progress",
        "text": _filled(asked["text"], TEXT_FIELDS),
        "top_logprobs": sampling.get("logprobs"),
        "truncation": asked["truncation"],
        "usage": None,
        "user": asked.get("user"),
        "presence_penalty": sampling["presence_penalty"],
        "frequency_penalty": sampling["frequency_penalty"],
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def _filled(given: Mapping[str, object] | None, names: Sequence[str]) -> Json | None:
    """An object with all the fields that the engine's own has."""
    if given is None:
        return None
    return {**{name: given.get(name) for name in names}, **given}


def usage(prompt: int, cached: int, created: int, output: int, reasoning: int) -> Json:
    """The counts of a response."""
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": cached,
            "cache_write_tokens": created,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": output,
        "output_tokens_details": {
            "reasoning_tokens": reasoning,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt + output,
    }


def reasoning_item(text: str, *, id_: str, status: str | None) -> Json:
    """Reasoning; without a text yet, it has no content."""
    content = [{"text": text, "type": "reasoning_text"}] if text else None
    return {
        "id": id_,
        "summary": [],
        "type": "reasoning",
        "content": content,
        "encrypted_content": None,
        "status": status,
    }


def message_item(parts: list[Json], *, id_: str, status: str) -> Json:
    """A message of the assistant."""
    return {
        "id": id_,
        "content": parts,
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def text_part(text: str, logprobs: list[Json] | None) -> Json:
    """A text in a message."""
    kind = "output_text"
    return {"annotations": [], "text": text, "type": kind, "logprobs": logprobs}


def call_item(call: Call, arguments: str, *, id_: str, name: str, status: str) -> Json:
    """A function call; `name` is that of the call, `id_` that of the item."""
    return {
        "arguments": arguments,
        "call_id": name,
        "name": call.name,
        "type": "function_call",
        "id": id_,
        "async": None,
        "caller": None,
        "namespace": None,
        "status": status,
    }


def new_id(prefix: str) -> str:
    """A name for an item."""
    return f"{prefix}_{token_hex(8)}"


def logprobs_of(told: Json | None) -> list[Json] | None:
    """Log probabilities of a text, in the order of this route's fields."""
    if told is None:
        return None
    return [
        {**_one(entry), "top_logprobs": [_one(top) for top in entry["top_logprobs"]]}
        for entry in told["content"] or ()
    ]


def _one(entry: Json) -> Json:
    return {name: entry[name] for name in ("token", "bytes", "logprob")}
