"""The answers of SGLang to chat and completions: exact keys, in their order.

Told from `srt/entrypoints/openai/protocol.py` and `sse_utils.py`.
"""

from collections.abc import Sequence

import msgspec

from simworker.exchange import Json, Part
from simworker.logprobs import LOGPROB, completion_logprobs

METADATA = {"weight_version": "default"}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer and every event of one request repeat."""

    id: str
    created: int
    model: str

    def begin(self, kind: str, choices: list[Json]) -> Json:
        """What every answer and every event begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def usage(prompt: int, completion: int, cached: int) -> Json:
    """The `usage` of an answer; a hit of 0 is not told, nor one that may not be."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        "reasoning_tokens": 0,
    }


def cached_details(cached: int) -> Json:
    """The `sglext` of an answer: where the hit was."""
    return {"cached_tokens_details": {"device": cached, "host": 0}}


def answer(
    head: Head, kind: str, choices: list[Json], used: Json, sglext: Json | None
) -> Json:
    """The body of an answer that is not streamed."""
    body = head.begin(kind, choices) | {"usage": used, "metadata": METADATA}
    return body if sglext is None else body | {"sglext": sglext}


def chat_choice(part: Part, matched: object) -> Json:
    """One choice of a chat answer."""
    choice = {
        "index": part.index,
        "message": {
            "role": "assistant",
            "content": part.text,
            "reasoning_content": None,
            "tool_calls": None,
        },
        "logprobs": part.logprobs,
        "finish_reason": part.finish_reason,
        "matched_stop": matched,
    }
    return choice | _ids(part)


def text_choice(part: Part, matched: object) -> Json:
    """One choice of a completions answer, or of an event of its stream."""
    choice = {
        "index": part.index,
        "text": part.text,
        "logprobs": part.logprobs,
        "finish_reason": part.finish_reason,
        "matched_stop": matched,
    }
    return choice | _ids(part)


def delta_choice(
    index: int,
    delta: Json,
    *,
    part: Part | None = None,
    finish_reason: str | None = None,
    matched: object = None,
) -> Json:
    """One choice of an event of a chat stream."""
    choice = {
        "index": index,
        "delta": {"reasoning_content": None, **delta},
        "logprobs": part.logprobs if part else None,
        "finish_reason": finish_reason,
        "matched_stop": matched,
    }
    return choice | _ids(part) if part else choice


def _ids(part: Part) -> Json:
    ids = {"prompt_token_ids": part.prompt_ids, "token_ids": part.token_ids}
    return {name: value for name, value in ids.items() if value is not None}


def chat_logprobs(pieces: Sequence[str], *, top: bool) -> Json:
    """`logprobs` of some tokens of a chat answer."""
    content = []
    for piece in pieces:
        entry: Json = {
            "token": piece,
            "bytes": list(piece.encode()),
            "logprob": LOGPROB,
        }
        content.append(entry | {"top_logprobs": [entry] if top else []})
    return {"content": content}


def text_logprobs(pieces: Sequence[str]) -> Json:
    """`logprobs` of some tokens of a completions answer; offsets are not known."""
    return completion_logprobs(pieces, 0) | {"text_offset": [-1] * len(pieces)}
