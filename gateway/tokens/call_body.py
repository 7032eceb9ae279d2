"""The fields of a call's body: found without decoding them, decoded one by one."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gateway.request.json_fields import top_level
from gateway.request.peek import FIELD_LIMIT, SMALL
from gateway.tokens.media import Features

T = TypeVar("T")
Raws = Mapping[str, msgspec.Raw]
ABSENT = msgspec.Raw(b"")
"""A field that is not there."""


class Unreadable(ValueError):
    """A call whose prompt is not known; its text is a word for it."""


class Body:
    """The fields of a call's body, each decoded when it is asked for."""

    def __init__(self, raws: Raws) -> None:
        self._raws = raws

    @property
    def size(self) -> int:
        """Bytes of all fields that may be decoded."""
        return sum(len(memoryview(raw)) for raw in self._raws.values())

    def __contains__(self, name: str) -> bool:
        """Whether it is there, and not null."""
        return self.begins(name) not in (b"", b"null")

    def begins(self, name: str) -> bytes:
        """The first bytes of a field, none where it is missing."""
        return bytes(memoryview(self._raws.get(name, ABSENT))[:5])

    def all_of(self, name: str) -> memoryview:
        """A field's JSON."""
        return memoryview(self._raws[name])

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
        return self._raws[name]

    def inner(self, name: str, kind: type[msgspec.Struct]) -> "Body":
        """The fields of `kind` of a field that is an object; none where it is not."""
        found = self.get(name, kind)
        return Body({} if found is None else _given(found))


class _Fields(msgspec.Struct):
    """The fields of all calls; msgspec passes over others, and never names them."""

    audio_data: msgspec.Raw = ABSENT
    cache_salt: msgspec.Raw = ABSENT
    content_parts: msgspec.Raw = ABSENT
    extra_key: msgspec.Raw = ABSENT
    features: msgspec.Raw = ABSENT
    image_data: msgspec.Raw = ABSENT
    input_embeds: msgspec.Raw = ABSENT
    input_ids: msgspec.Raw = ABSENT
    kind: msgspec.Raw = ABSENT
    lora_path: msgspec.Raw = ABSENT
    model: msgspec.Raw = ABSENT
    request: msgspec.Raw = ABSENT
    sampling_params: msgspec.Raw = ABSENT
    schema_version: msgspec.Raw = ABSENT
    stream: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    token_ids: msgspec.Raw = ABSENT
    video_data: msgspec.Raw = ABSENT


NAMES = frozenset(_Fields.__struct_fields__)
OF_FEATURES = frozenset(Features.__struct_fields__)


async def fields_of(body: bytes) -> Body:
    """The fields of a call; raises Unreadable. No long work holds the event loop."""
    if len(body) <= SMALL:
        try:
            return Body(_given(msgspec.json.decode(body, type=_Fields)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Unreadable("not_json") from None
    found, view = await _places(body, NAMES), memoryview(body)
    raws = {name: msgspec.Raw(view[start:end]) for name, (start, end) in found.items()}
    start, end = found.get("features", (0, 0))
    if end - start > SMALL:  # data of images: it is passed over
        inner = await _places(body, OF_FEATURES, (start, end))
        if sum(end - start for start, end in inner.values()) > SMALL:
            raise Unreadable("too_complex")
        told = b",".join(
            b'"%b":%b' % (name.encode(), body[start:end])
            for name, (start, end) in inner.items()
        )
        raws["features"] = msgspec.Raw(b"{" + told + b"}")
    return Body(raws)


async def _places(
    body: bytes, names: frozenset[str], within: tuple[int, int] | None = None
) -> dict[str, tuple[int, int]]:
    found = await top_level(body, names=names, within=within)
    if isinstance(found, str):
        raise Unreadable(found)
    return found


def _given(fields: msgspec.Struct) -> Raws:
    """The fields that are there."""
    raws = msgspec.structs.asdict(fields)
    return {name: raw for name, raw in raws.items() if raw is not ABSENT}
