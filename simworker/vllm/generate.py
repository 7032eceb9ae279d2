"""vLLM's `/inference/v1/generate`: token ids in, token ids out, and how it is aborted.

As vLLM 0.32 has it, with `output_mode: tokens`. Nothing is rendered here.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from simworker.answers import Answer
from simworker.errors import ApiError, not_valid
from simworker.exchange import Exchange, Json, Line, Part
from simworker.hashing import Medium
from simworker.logprobs import LOGPROB
from simworker.request import Body, Call
from simworker.vllm import fields, shapes
from simworker.vllm.calls import rank_of

MODES = ("tokens",)


def generate_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a generate body. Raises ApiError."""
    ids = _token_ids(body)
    if "sampling_params" not in body:
        where = "body.sampling_params"
        raise not_valid("missing", where, "Field required", body)
    sampling = fields.record(body, "sampling_params")
    mode = body.get("output_mode", "tokens")
    if mode not in MODES:
        message = "Input should be 'tokens'"
        raise not_valid("literal_error", "body.output_mode", message, mode)
    stream_options = fields.record(body, "stream_options")
    request_id = headers.get("X-Request-Id") or fields.text(body, "request_id")
    choices = fields.integer(sampling, "n")
    return Call(
        body=body,
        request_id=str(request_id or secrets.token_hex(8)),
        model=fields.text(body, "model"),
        choices=1 if choices is None else choices,
        max_tokens=fields.integer(sampling, "max_tokens"),
        stream=fields.flag(body, "stream"),
        include_usage=fields.flag(stream_options, "include_usage"),
        continuous_usage=fields.flag(stream_options, "continuous_usage_stats"),
        return_prompt_ids=fields.flag(body, "return_token_ids"),
        return_token_ids=True,
        logprobs=sampling.get("logprobs") is not None,
        seed=fields.integer(sampling, "seed") or 0,
        stop=fields.texts(sampling, "stop"),
        stop_token_ids=fields.ids(sampling, "stop_token_ids"),
        include_stop=fields.flag(sampling, "include_stop_str_in_output"),
        ignore_eos=fields.flag(sampling, "ignore_eos"),
        salt=fields.text(body, "cache_salt"),
        prompt_ids=ids,
        read_cache=sampling.get("prompt_logprobs") is None,
        rank=rank_of(headers),
    )


def tokens_only_call(
    body: Body, headers: Mapping[str, str], max_model_len: int
) -> Call:
    """The same where nothing is detokenized: there are no stop strings. ApiError."""
    call = generate_call(body, headers, max_model_len)
    if call.stop:
        raise ApiError(
            "stop strings are not supported on a --tokens-only server because "
            "detokenization is disabled. Check stop strings on the coordinator, or use "
            "stop_token_ids."
        )
    return call


def media_of(body: Body) -> tuple[Medium, ...]:
    """The media of a body's `features`, in order of their places. Raises ApiError."""
    features = fields.record(body, "features")
    found = []
    try:
        for modality, hashes in features.get("mm_hashes", {}).items():
            places = features["mm_placeholders"][modality]
            for hash_, place in zip(hashes, places, strict=True):
                found.append(Medium(str(hash_), int(place["offset"]), place["length"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        message = "mm_hashes and mm_placeholders must have the same length"
        raise not_valid("value_error", "body.features", message, features) from None
    return tuple(sorted(found, key=lambda medium: medium.offset))


def aborted_ids(body: Body) -> list[str]:
    """The names in the body of an abort. Raises ApiError."""
    names = body.get("request_ids")
    if not isinstance(names, list):
        raise ApiError("Missing 'request_ids' in request body")
    return [str(name) for name in names]


def _token_ids(body: Body) -> list[int]:
    where = "body.token_ids"
    if "token_ids" not in body:
        raise not_valid("missing", where, "Field required", body)
    ids = body["token_ids"]
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise not_valid("list_type", where, "Input should be a valid list", ids)
    if not ids:
        message = "List should have at least 1 item after validation, not 0"
        raise not_valid("too_short", where, message, ids)
    if min(ids) < 0:
        message = "Value error, token_ids must not contain negative values"
        raise not_valid("value_error", where, message, ids)
    return ids


class GenerateExchange(Exchange):
    """The answer: whole, or as a stream of events."""

    id_prefix = "generate-tokens-"

    def _whole(self, parts: list[Part]) -> Json:
        ids = self._tasks[0].prompt_ids if self._call.return_prompt_ids else None
        return {
            "request_id": self._id,
            "model": self._model,
            "created": self._created,
            "usage": self._counts().usage(),
            "prompt_logprobs": None,
            "prompt_token_id_logprobs": None,
            "prompt_token_ids": ids,
            "mm_placeholders": None,
            "metrics": None,
            "kv_transfer_params": self._call.body.get("kv_transfer_params"),
            "ec_transfer_params": self._call.body.get("ec_transfer_params"),
            "output_mode": "tokens",
            "choices": [_choice(part) for part in parts],
        }

    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        used = None
        if self._call.continuous_usage:
            used = self._counts().running_usage(line.sent)
        ids = {}
        if part.prompt_ids is not None and line is self._lines[0]:
            ids["prompt_token_ids"] = part.prompt_ids
        yield self._chunk([_choice(part)], used, **ids)

    def _closing(self) -> Iterator[Json]:
        if self._call.include_usage:
            yield self._chunk([], self._counts().stream_usage())

    def _chunk(self, choices: list[Json], used: Json | None, **more: Any) -> Json:
        return {
            "request_id": self._id,
            "usage": used,
            **more,
            "output_mode": "tokens",
            "choices": choices,
        }

    def _counts(self) -> shapes.Counts:
        return shapes.Counts(
            prompt=self._prompt_tokens,
            completion=self._output_tokens,
            cached=self._cached_tokens[0] if self._service.tell_cached else None,
            created_cache=None,
        )

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        return {
            "content": [
                {
                    "token_id": token_id,
                    "logprob": LOGPROB,
                    "rank": 1,
                    "top_logprobs": [
                        {"token_id": token_id, "logprob": LOGPROB, "rank": 1}
                    ],
                }
                for token_id in answer.token_ids[start:end]
            ]
        }


def _choice(part: Part) -> Json:
    ended = part.finish_reason is not None
    spans = [{"version": "default", "start": 0, "end": len(part.token_ids or ())}]
    return {
        "index": part.index,
        "finish_reason": part.finish_reason,
        "stop_reason": part.stop_reason,
        "token_ids": part.token_ids,
        "routed_experts": None,
        "sampling_mask": None,
        "weight_versions": spans if ended else None,
        "logprobs": part.logprobs,
    }
