"""Calls that bring token ids along: what routing needs of their bodies.

vLLM's `/inference/v1/generate`, SGLang's `/generate` and TensorRT-LLM's, which is told
apart by `schema_version` and `kind`. Nothing is checked: the worker decides what a call
is worth, and gets its bytes as they came.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gateway.request.json_fields import top_level
from gateway.request.peek import (
    FIELD_LIMIT,
    PROMPT_LOGPROBS,
    SEVERAL_ANSWERS,
    SMALL,
)
from gateway.tokens.media import Features, Medium, media_of
from kvindex.blocks import pack_ids

VLLM, SGLANG, TRTLLM = "vllm", "sglang", "trtllm"
GENERATE = "/generate"
PATHS = frozenset({"/inference/v1/generate", GENERATE})
T = TypeVar("T")
Raws = Mapping[str, bytes | msgspec.Raw]


class Unreadable(ValueError):
    """A call whose prompt is not known; its text is a word for it."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `prompts` are packed ids, or `texts` that have to be tokenized."""

    engine: str
    prompts: Sequence[bytes] = ()
    texts: Sequence[str] = ()
    model: str | None = None
    extra_key: msgspec.Raw | None = None
    lora_path: msgspec.Raw | None = None
    lora_request: msgspec.Raw | None = None
    salt: str | None = None
    stream: bool = False
    max_tokens: int | None = None
    media: Sequence[Medium] = ()
    uncompared: str | None = None


class Body:
    """The fields of a call's body, each decoded when it is asked for."""

    def __init__(self, raws: Raws) -> None:
        self._raws = raws

    def __contains__(self, name: str) -> bool:
        """Whether it is there, and not null."""
        return bytes(self._raws.get(name, b"null")[:5]) != b"null"

    def get(self, name: str, kind: type[T]) -> T | None:
        """A field of that type; None where it is another or missing."""
        if name not in self:
            return None
        try:
            return msgspec.json.decode(self._raws[name], type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def raw(self, name: str) -> msgspec.Raw | None:
        """A field as it came, None where it is missing; raises Unreadable if long."""
        if name not in self:
            return None
        if len(memoryview(self._raws[name])) > FIELD_LIMIT:
            raise Unreadable("too_complex")
        return msgspec.Raw(self._raws[name])

    def inner(self, name: str) -> "Body":
        """The fields of a field that is an object; none where it is not."""
        found = self.get(name, dict[str, msgspec.Raw]) or {}
        return Body({key: bytes(raw) for key, raw in found.items()})


class _Sampling(msgspec.Struct, frozen=True):
    """What routing needs of sampling parameters, under all their names."""

    n: Any = None
    max_tokens: Any = None
    max_new_tokens: Any = None
    prompt_logprobs: Any = None


NAMES = frozenset(
    {
        "cache_salt", "content_parts", "features", "image_data", "video_data",
        "audio_data", "extra_key", "input_embeds", "input_ids", "kind", "lora_path",
        "model", "request", "sampling_params", "schema_version", "stream", "text",
        "token_ids",
    }
)  # fmt: skip
OF_FEATURES = frozenset(Features.__struct_fields__)
MEDIA = ("image_data", "video_data", "audio_data", "input_embeds")


async def fields_of(body: bytes) -> Body:
    """The fields of a call; raises Unreadable. No long work holds the event loop."""
    fields = await _fields(body, NAMES)
    features = fields.get("features", b"")
    if len(features) > SMALL:  # data of images: it is passed over
        inner = await _fields(bytes(features), OF_FEATURES)
        told = b",".join(b'"%b":%b' % (k.encode(), v) for k, v in inner.items())
        fields = {**fields, "features": b"{" + told + b"}"}
    return Body(fields)


async def _fields(body: bytes, names: frozenset[str]) -> dict[str, bytes]:
    if len(body) > SMALL:
        found = await top_level(body, names=names)
        if isinstance(found, str):
            raise Unreadable(found)
        return {name: body[start:end] for name, (start, end) in found.items()}
    try:
        raws = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unreadable("not_json") from None
    return {name: bytes(raw) for name, raw in raws.items() if name in names}


def engine_of(path: str, body: Body | None) -> str:
    """Whose call one to a path of `PATHS` is, be its prompt readable or not.

    None: its body has no fields.
    """
    if path != GENERATE:
        return VLLM
    told = body is not None and "schema_version" in body and "kind" in body
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
    text = body.get("text", str)
    texts = body.get("text", list[str]) or [] if text is None else [text]
    return Call(
        engine=SGLANG,
        prompts=[] if texts else _several(body),
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
    asked = body.inner("request")
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
