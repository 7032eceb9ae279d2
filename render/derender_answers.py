"""Derendered answers in OpenAI's shapes, with every field that vLLM writes."""

import secrets
from collections.abc import Callable, Sequence

from render.body import Json
from render.derender import Message
from render.parsers.events import Call, Event

NewId = Callable[[], str]


def new_call_id() -> str:
    """A name for a tool call."""
    return secrets.token_hex(8)


def usage(prompt_tokens: int, completion_tokens: int) -> Json:
    """The counts of an answer."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }


def chat_choice(
    message: Message,
    generated: Json,
    request: Json | None,
    *,
    parsed: bool,
    new_id: NewId = new_call_id,
) -> Json:
    """A choice of a chat."""
    asked = request or {}
    reasoning_shown = asked.get("include_reasoning", True) or not parsed
    content = message.text("content")
    if not parsed or must_call(asked):
        content = content or ""
    calls = message.calls
    if asked.get("parallel_tool_calls") is False:
        calls = calls[:1]
    shown: Json = {
        "role": "assistant",
        "content": content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if calls:
        shown["tool_calls"] = [tool_call(call, new_id()) for call in calls]
    shown["reasoning"] = message.text("reasoning") if reasoning_shown else None
    ids_shown = bool(asked.get("return_token_ids")) and reasoning_shown
    return {
        "index": generated["index"],
        "message": shown,
        "logprobs": message.logprobs,
        "finish_reason": message.finish_reason,
        "stop_reason": message.stop_reason,
        "token_ids": generated["token_ids"] if ids_shown else None,
        "routed_experts": None,
    }


def must_call(request: Json) -> bool:
    """Whether a request's answer has to be a call."""
    choice = request.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def tool_call(call: Call, id_: str) -> Json:
    """A whole tool call."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": id_, "type": "function", "function": function}


def chat_answer(
    response: Json, choices: Sequence[Json], counts: Json, model: str, created: int
) -> Json:
    """The answer to a whole chat; `response` is what was generated."""
    return {
        "id": response["request_id"],
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [*choices],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": counts,
        "prompt_logprobs": response["prompt_logprobs"],
        "prompt_token_ids": None,
        "prompt_text": None,
        "kv_transfer_params": response["kv_transfer_params"],
        "ec_transfer_params": None,
        "metrics": response["metrics"],
    }


def completion_answer(
    responses: Sequence[Json],
    choices: Sequence[Json],
    counts: Json,
    model: str,
    created: int,
) -> Json:
    """The answer to a completion of one or several prompts."""
    first = responses[0]
    transfer = first["kv_transfer_params"]
    if any(other["kv_transfer_params"] != transfer for other in responses):
        transfer = None
    return {
        "id": first["request_id"],
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": [*choices],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": counts,
        "kv_transfer_params": transfer,
        "ec_transfer_params": None,
        "metrics": first["metrics"] if len(responses) == 1 else None,
    }


def deltas(
    events: Sequence[Event],
    request: Json | None,
    called: int,
    new_id: NewId = new_call_id,
) -> tuple[list[Json], int]:
    """Events as deltas of a stream, and how many calls there are by now.

    `called` is how many there were.
    """
    asked = request or {}
    shows = asked.get("include_reasoning", True)
    single = asked.get("parallel_tool_calls") is False
    out: list[Json] = []
    for event in events:
        if isinstance(event, Call):
            if not (single and called):
                delta = {"index": called, **tool_call(event, new_id())}
                out.append({"tool_calls": [delta]})
            called += 1
        elif event.kind == "content":
            out.append({"content": event.text})
        elif shows:
            out.append({"reasoning": event.text})
    return out, called
