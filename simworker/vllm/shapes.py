"""The answers of vLLM 0.32 to chat and completions: exact keys, in their order.

Plain dictionaries: they are written once and read by no one here.
"""

from collections.abc import Iterable, Sequence

import msgspec

from simworker.exchange import Json, Part
from simworker.logprobs import LOGPROB


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer and every chunk of one request repeats."""

    id: str
    created: int
    model: str
    fingerprint: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one request; `cached` None: the worker does not tell."""

    prompt: int
    completion: int
    cached: int | None
    created_cache: int | None

    def usage(self) -> Json:
        """The `usage` of a whole answer."""
        usage = self._totals()
        usage["prompt_tokens_details"] = None
        if self.cached is not None:
            usage["prompt_tokens_details"] = {
                "cached_tokens": self.cached,
                "created_cache_tokens": self.created_cache,
                "multimodal_tokens": None,
            }
        usage["completion_tokens_details"] = None
        return usage

    def stream_usage(self) -> Json:
        """The `usage` of a stream's last event: unset fields are left out."""
        usage = self._totals()
        if self.cached is not None:
            details = {"cached_tokens": self.cached}
            if self.created_cache is not None:
                details["created_cache_tokens"] = self.created_cache
            usage["prompt_tokens_details"] = details
        return usage

    def running_usage(self, completion: int) -> Json:
        """The `usage` of an event in mid-stream, `completion` tokens into it."""
        return self._totals(completion)

    def _totals(self, completion: int | None = None) -> Json:
        completion = self.completion if completion is None else completion
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + completion,
            "completion_tokens": completion,
        }


def chat_answer(
    head: Head, choices: Iterable[Part], counts: Counts, prompt_ids: object
) -> Json:
    """The body of a chat answer that is not streamed."""
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [_chat_choice(choice) for choice in choices],
        "service_tier": None,
        "system_fingerprint": head.fingerprint,
        "usage": counts.usage(),
        "prompt_logprobs": None,
        "prompt_token_ids": prompt_ids,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _chat_choice(choice: Part) -> Json:
    return {
        "index": choice.index,
        "message": {
            "role": "assistant",
            "content": choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": choice.logprobs,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": choice.token_ids,
        "routed_experts": None,
    }


def completion_answer(head: Head, choices: Iterable[Part], counts: Counts) -> Json:
    """The body of a completions answer that is not streamed."""
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": [_completion_choice(choice) for choice in choices],
        "service_tier": None,
        "system_fingerprint": head.fingerprint,
        "usage": counts.usage(),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _completion_choice(choice: Part) -> Json:
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": choice.logprobs,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": choice.token_ids,
        "prompt_logprobs": None,
        "prompt_token_ids": choice.prompt_ids,
        "routed_experts": None,
    }


def chat_chunk(head: Head, choices: list[Json], **more: object) -> Json:
    """One event of a chat stream."""
    return _chunk("chat.completion.chunk", head, choices) | more


def completion_chunk(head: Head, choices: list[Json], **more: object) -> Json:
    """One event of a completions stream."""
    return _chunk("text_completion", head, choices) | more


def _chunk(kind: str, head: Head, choices: list[Json]) -> Json:
    return {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
    }


def role_choice(index: int) -> Json:
    """The choice of a chat stream's first event: it only names the role."""
    return {
        "index": index,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }


def chat_delta(part: Part) -> Json:
    """Some tokens of a chat stream; `finish_reason` empty while more will come."""
    choice = {
        "index": part.index,
        "delta": {"content": part.text},
        "logprobs": part.logprobs,
        "finish_reason": part.finish_reason,
    }
    if part.finish_reason:
        choice["stop_reason"] = part.stop_reason
    return choice | {"token_ids": part.token_ids}


def completion_delta(part: Part) -> Json:
    """Some tokens of a completions stream."""
    return {
        "index": part.index,
        "text": part.text,
        "logprobs": part.logprobs,
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
        "prompt_token_ids": part.prompt_ids,
        "token_ids": part.token_ids,
    }


def chat_logprobs(pieces: Sequence[str], *, top: bool) -> Json:
    """`logprobs` of some tokens of a chat answer."""
    content = []
    for piece in pieces:
        entry: Json = {
            "token": piece,
            "logprob": LOGPROB,
            "bytes": list(piece.encode()),
        }
        content.append(entry | {"top_logprobs": [entry] if top else []})
    return {"content": content}
