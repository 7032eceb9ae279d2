"""Calls that bring token ids along: what routing needs of their bodies.

vLLM's `/inference/v1/generate`, SGLang's `/generate` and TensorRT-LLM's, which is told
apart by `schema_version` and `kind`. Nothing is checked: the worker decides what a call
is worth, and gets its bytes as they came.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from gateway.request.peek import PROMPT_LOGPROBS, SEVERAL_ANSWERS
from gateway.tokens.call_body import ABSENT, Body, Unreadable
from gateway.tokens.media import Features, Medium, media_of
from kvindex.blocks import pack_ids

VLLM, SGLANG, TRTLLM = "vllm", "sglang", "trtllm"
GENERATE = "/generate"
PATHS = frozenset({"/inference/v1/generate", GENERATE})
T = TypeVar("T")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `prompts` are packed ids, or `texts` that have to be tokenized.

    These are as they came, in a completion's body; empty where there are none.
    """

    engine: str
    prompts: Sequence[bytes] = ()
    texts: bytes = b""
    model: str | None = None
    extra_key: msgspec.Raw | None = None
    lora_path: msgspec.Raw | None = None
    lora_request: msgspec.Raw | None = None
    salt: str | None = None
    stream: bool = False
    max_tokens: int | None = None
    media: Sequence[Medium] = ()
    uncompared: str | None = None


class _Sampling(msgspec.Struct, frozen=True):
    """What routing needs of sampling parameters, under all their names."""

    n: Any = None
    max_tokens: Any = None
    max_new_tokens: Any = None
    prompt_logprobs: Any = None


class Request(msgspec.Struct):
    """The fields of what TensorRT-LLM has rendered elsewhere."""

    cache_salt: msgspec.Raw = ABSENT
    lora_request: msgspec.Raw = ABSENT
    max_completion_tokens: msgspec.Raw = ABSENT
    max_tokens: msgspec.Raw = ABSENT
    model: msgspec.Raw = ABSENT
    n: msgspec.Raw = ABSENT
    stream: msgspec.Raw = ABSENT


MEDIA = ("image_data", "video_data", "audio_data", "input_embeds")


def engine_of(path: str, body: Body) -> str:
    """Whose call one to a path of `PATHS` is, be its prompt readable or not."""
    if path != GENERATE:
        return VLLM
    told = "schema_version" in body and "kind" in body
    return TRTLLM if told else SGLANG


def read(path: str, body: Body) -> Call:
    """A call to a path of `PATHS`; raises Unreadable. Long ids take a while."""
    of = {VLLM: _vllm, SGLANG: _sglang, TRTLLM: _trtllm}
    return of[engine_of(path, body)](body)


def _vllm(body: Body) -> Call:
    if "content_parts" in body:
        raise Unreadable("media")  # the worker makes the ids of these
    try:
        media = media_of(body.get("features", Features))
    except ValueError:
        raise Unreadable("bad_prompt") from None
    sampling = body.get("sampling_params", _Sampling) or _Sampling()
    return Call(
        engine=VLLM,
        prompts=[_ids(body, "token_ids")],
        model=body.get("model", str),
        salt=body.get("cache_salt", str),
        stream=body.get("stream", bool) or False,
        max_tokens=_whole(sampling.max_tokens),
        media=media,
        uncompared=_uncompared(sampling),
    )


def _sglang(body: Body) -> Call:
    if any(name in body for name in MEDIA):
        raise Unreadable("media")
    sampling = body.get("sampling_params", _Sampling) or _Sampling()
    texts = _texts(body)
    return Call(
        engine=SGLANG,
        prompts=() if texts else _several(body),
        texts=texts,
        model=body.get("model", str),
        extra_key=body.raw("extra_key"),
        lora_path=body.raw("lora_path"),
        salt=body.get("cache_salt", str),
        stream=body.get("stream", bool) or False,
        max_tokens=_whole(sampling.max_new_tokens),
        uncompared=_uncompared(sampling),
    )


def _trtllm(body: Body) -> Call:
    asked = body.inner("request", Request)
    newer = asked.get("max_completion_tokens", int)
    n = asked.get("n", int) or 1
    return Call(
        engine=TRTLLM,
        prompts=[_ids(body, "token_ids")],
        model=body.get("model", str) or asked.get("model", str),
        lora_request=asked.raw("lora_request"),
        salt=body.get("cache_salt", str) or asked.get("cache_salt", str),
        stream=asked.get("stream", bool) or False,
        max_tokens=asked.get("max_tokens", int) if newer is None else newer,
        uncompared=SEVERAL_ANSWERS if n > 1 else None,
    )


def _texts(body: Body) -> bytes:
    """A text or several, not decoded: what renders them does that."""
    told = body.begins("text")
    if told[:1] not in (b'"', b"[") or told[1:].lstrip()[:1] == b"]":
        return b""
    return b"".join((b'{"prompt":', body.all_of("text"), b"}"))


def _ids(body: Body, name: str) -> bytes:
    ids = body.get(name, list[int])
    if not ids:
        raise Unreadable("bad_prompt")
    return _packed(ids)


def _several(body: Body) -> list[bytes]:
    """The prompts of a body with one list of ids, or with several."""
    lists = body.get("input_ids", list[list[int]])
    if lists and any(lists):
        return [_packed(ids) for ids in lists if ids]
    return [_ids(body, "input_ids")]


def _packed(ids: Sequence[int]) -> bytes:
    try:
        return pack_ids(ids)
    except ValueError:
        raise Unreadable("bad_prompt") from None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _uncompared(sampling: _Sampling) -> str | None:
    if (_whole(sampling.n) or 1) > 1:
        return SEVERAL_ANSWERS
    return None if sampling.prompt_logprobs is None else PROMPT_LOGPROBS
