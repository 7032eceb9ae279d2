"""SGLang's own `/generate`: a text or token ids in, text and ids out.

Told from `srt/managers/io_struct.py` and `tokenizer_manager.py`. One prompt or several;
the events of a stream repeat all that was said so far.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from simworker.answers import Answer
from simworker.errors import ApiError
from simworker.exchange import Exchange, Json, Line, Part
from simworker.request import Body, Call
from simworker.sglang.calls import told_apart

DEFAULT_TOKENS = 128
T = TypeVar("T", str, int)


def generate_call(body: Body, headers: Mapping[str, str], max_model_len: int) -> Call:
    """Check a body of `/generate`. Raises ApiError."""
    text, ids = body.get("text"), body.get("input_ids")
    if (text is None) == (ids is None):
        raise ApiError("Either text, input_ids or input_embeds should be provided.")
    sampling = body.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise ApiError("sampling_params of several requests are not simulated")
    rid = body.get("rid")
    return Call(
        body={**body, "prompt": ids if text is None else text},
        request_id=rid if isinstance(rid, str) and rid else secrets.token_hex(16),
        model=body.get("model"),
        choices=_whole(sampling, "n", 1),
        max_tokens=_whole(sampling, "max_new_tokens", DEFAULT_TOKENS),
        stream=body.get("stream") is True,
        return_token_ids=True,
        seed=_whole(sampling, "sampling_seed", 0),
        stop=_several(sampling, "stop", str),
        stop_token_ids=_several(sampling, "stop_token_ids", int),
        ignore_eos=sampling.get("ignore_eos") is True,
        **told_apart(body),
        rank=_rank(headers),
    )


def _whole(sampling: Mapping[str, Any], name: str, default: int) -> int:
    value = sampling.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise ApiError(f"{name} must be at least 0, got {value}.")
    return value


def _several(sampling: Mapping[str, Any], name: str, of: type[T]) -> tuple[T, ...]:
    """One, or a list of them."""
    given = sampling.get(name) or ()
    values = given if isinstance(given, list | tuple) else [given]
    if any(type(value) is not of for value in values):
        raise ApiError(f"{name} must be of {of.__name__}, got something else.")
    return tuple(values)


def _rank(headers: Mapping[str, str]) -> int | None:
    header = headers.get("X-Data-Parallel-Rank", "").strip()
    return int(header) if header.isdecimal() else None


class GenerateExchange(Exchange):
    """The answer: an object for one prompt, a list for several."""

    def _whole(self, parts: list[Part]) -> Any:
        told = [
            self._answer(line, len(part.token_ids or ()), ended=True)
            for line, part in zip(self._lines, parts, strict=True)
        ]
        return told if self._numbered else told[0]

    @property
    def _numbered(self) -> bool:
        return len(self._lines) > 1

    def _tokens(self, line: Line, part: Part) -> Iterator[Json]:
        ended = part.finish_reason is not None
        event = self._answer(line, line.sent, ended=ended)
        yield {**event, "index": line.index} if self._numbered else event

    def _closing(self) -> Iterator[Json]:
        yield from ()

    def _answer(self, line: Line, said: int, *, ended: bool) -> Json:
        answer = line.answer
        cached = line.job.cached_tokens or 0
        id_ = f"{self._id}-{line.index}" if self._numbered else self._id
        info = {
            "id": id_,
            "finish_reason": _reason(answer) if ended else None,
            "prompt_tokens": len(line.task.prompt_ids),
            "weight_version": "default",
            "num_retractions": 0,
            "completion_tokens": said,
            "cached_tokens": cached if self._service.tell_cached else 0,
        }
        return {
            "text": "".join(answer.pieces[:said]),
            "output_ids": answer.token_ids[:said],
            "meta_info": info,
        }

    def _logprobs(self, answer: Answer, start: int, end: int) -> Json:
        return {}


def _reason(answer: Answer) -> Json:
    if answer.finish_reason == "length":
        return {"type": "length", "length": len(answer.token_ids)}
    matched = answer.stop_reason
    return {
        "type": "stop",
        "matched": answer.token_ids[-1] if matched is None else matched,
    }
