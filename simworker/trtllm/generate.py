"""TensorRT-LLM's `/generate` for requests that were rendered elsewhere.

A rendered request, as its render routes answer it, runs as the chat or the completion
that it was made of, with its ids in place of text.
"""

from collections.abc import Mapping

from simworker.errors import ApiError, not_valid
from simworker.planning import Planner, Task
from simworker.request import Body, Call
from simworker.trtllm.calls import chat_call, completion_call
from simworker.trtllm.generation import (
    ChatExchange,
    CompletionExchange,
    TrtllmExchange,
)

SCHEMA_VERSION = 1
CHAT, COMPLETION = "chat", "completion"
EXCHANGES: Mapping[str, type[TrtllmExchange]] = {
    CHAT: ChatExchange,
    COMPLETION: CompletionExchange,
}


def kind_of(body: Body) -> str:
    """What was rendered. Raises ApiError for what is no rendered request."""
    if body.get("schema_version") != SCHEMA_VERSION:
        version = body.get("schema_version")
        raise ApiError(
            f"unsupported schema_version {version}: this is {SCHEMA_VERSION}"
        )
    kind = body.get("kind")
    if kind not in EXCHANGES:
        where = "body.kind"
        raise not_valid("literal_error", where, "Input should be 'chat'", kind)
    return str(kind)


def generate_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a rendered request. Raises RenderRefused."""
    kind, ids, request = kind_of(body), body.get("token_ids"), body.get("request")
    if not isinstance(ids, list) or not ids:
        where = "body.token_ids"
        raise not_valid("list_type", where, "Input should be a valid list", ids)
    if not isinstance(request, dict):
        where = "body.request"
        raise not_valid("dict_type", where, "Input should be a dictionary", request)
    if kind == CHAT:
        return chat_call({**request, "prompt_token_ids": ids}, headers, max_model_len)
    return completion_call({**request, "prompt": ids}, headers, max_model_len)


def plan(planner: Planner, call: Call) -> list[Task]:
    """The prompt of a call. Raises ApiError."""
    return planner.chat(call) if "messages" in call.body else planner.completion(call)
