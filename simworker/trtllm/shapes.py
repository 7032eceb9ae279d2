"""The answers of TensorRT-LLM to chat and completions: exact keys, in their order.

Told from `tensorrt_llm/serve/openai_protocol.py` and `postprocess_handlers.py`.
"""

from collections.abc import Sequence

import msgspec

from simworker.exchange import Json, Part
from simworker.logprobs import LOGPROB


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer and every event of one request repeat."""

    id: str
    created: int
    model: str


def usage(prompt: int, completion: int, cached: int | None) -> Json:
    """The `usage` of an answer; `cached` None: not told."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
    }


def chat_answer(head: Head, parts: Sequence[Part], used: Json) -> Json:
    """The body of a chat answer that is not streamed."""
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [_chat_choice(part) for part in parts],
        "usage": used,
        "prompt_token_ids": None,
        "prompt_token_ids_b64": None,
    }


def _chat_choice(part: Part) -> Json:
    return {
        "index": part.index,
        "message": {
            "role": "assistant",
            "content": part.text,
            "reasoning_content": "",
            "reasoning": None,
            "tool_calls": [],
        },
        "logprobs": part.logprobs,
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
        "mm_embedding_handle": None,
        "disaggregated_params": None,
        "avg_decoded_tokens_per_iter": 1.0,
    }


def completion_answer(head: Head, parts: Sequence[Part], used: Json) -> Json:
    """The body of a completions answer that is not streamed."""
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": [_completion_choice(part) for part in parts],
        "usage": used,
        "prompt_token_ids": None,
    }


def _completion_choice(part: Part) -> Json:
    return {
        "index": part.index,
        "text": part.text if part.token_ids is None else "",
        "token_ids": part.token_ids,
        "logprobs": part.logprobs,
        "context_logits": None,
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
        "disaggregated_params": None,
        "avg_decoded_tokens_per_iter": 1.0,
    }


def chat_event(head: Head, choices: list[Json], used: Json | None) -> Json:
    """One event of a chat stream; what is null is left out of all but the last."""
    event = {
        "id": head.id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "choices": choices,
    }
    return event if used is None else {**event, "usage": used}


def role_choice(index: int) -> Json:
    """The choice of a chat stream's first event: it only names the role."""
    return {"index": index, "delta": {"role": "assistant"}}


def chat_delta(part: Part) -> Json:
    """Some tokens of a chat stream."""
    choice = {
        "index": part.index,
        "delta": {"content": part.text, "reasoning_content": ""},
        "logprobs": part.logprobs,
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
        "avg_decoded_tokens_per_iter": 1.0,
    }
    return {name: value for name, value in choice.items() if value is not None}


def completion_event(head: Head, choices: list[Json], used: Json | None) -> Json:
    """One event of a completions stream."""
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": used,
    }


def completion_delta(part: Part) -> Json:
    """Some tokens of a completions stream."""
    choice = _completion_choice(part)
    del choice["context_logits"], choice["disaggregated_params"]
    return choice


def chat_logprobs(pieces: Sequence[str], *, top: bool) -> Json:
    """`logprobs` of some tokens of a chat answer."""
    content = []
    for piece in pieces:
        entry: Json = {
            "token": piece,
            "logprob": LOGPROB,
            "bytes": list(piece.encode()),
        }
        content.append({**entry, "top_logprobs": [entry]} if top else entry)
    return {"content": content}
