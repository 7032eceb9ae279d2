"""A large payload cut into smaller ones, so that none takes long to decode.

A prompt of 40,000 tokens is one event, of megabytes in JSON: to decode it whole would
hold the caller for longer than a request may wait. It is cut between events, a long
chain of stored blocks between blocks, and a long JSON list of removed ones, without
looking at what is not needed for that.
What has another shape than expected is left whole: the decoder says what is wrong.

Both forms are known here: the msgpack batches of vLLM and SGLang, and the JSON events
of TensorRT-LLM. Not here: what the fields mean.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import json, msgpack

from kvindex.wire.json_walk import STEP_BYTES, Walk, as_list, skip_space

PIECE_BYTES = STEP_BYTES

_BROKEN = (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError)
_HASHES, _PARENT, _TOKENS, _SIZE = range(1, 5)
_NUMBER = rb"(?:[\x00-\x7f]|\xcc.|\xcd..|\xce.{4}|\xcf.{8})"
_TOKEN = b"(?:%b|\x92%b%b)" % (_NUMBER, _NUMBER, _NUMBER)
"""A token id, or a pair, as msgpack has them."""
_FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size")
"""Of a stored chain; in an array they follow the type."""
_LISTS = {"stored": "blocks", "removed": "block_hashes"}
"""In JSON, the list that may be long."""


class Piece(NamedTuple):
    """A payload of its own. With `goes_on` its event is more of the last piece's chain,
    with `from_root` of one that has no parent."""

    payload: bytes
    goes_on: bool = False
    from_root: bool = False


class _Batch(msgspec.Struct, array_like=True):
    timestamp: msgspec.Raw
    events: list[msgspec.Raw]
    rank: msgspec.Raw = msgspec.Raw(b"\xc0")


class _Block(msgspec.Struct):
    block_hash: int | str


_BATCH = msgpack.Decoder(_Batch)
_MAP = msgpack.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgpack.Decoder(list[msgspec.Raw])
_BLOCKS = json.Decoder(list[_Block])


def cut(payload: bytes | memoryview, size: int = PIECE_BYTES) -> Iterator[Piece | None]:
    """Payloads of about `size` bytes that together say what `payload` says.

    None where a step found where to cut, and nothing else.
    """
    if len(payload) <= size:
        yield Piece(bytes(payload))
    elif payload[:1] == b"{":
        yield from _cut_json(payload, size)
    else:
        yield from _cut_batch(bytes(payload), size)


def _cut_json(payload: bytes | memoryview, size: int) -> Iterator[Piece | None]:
    """An event of TensorRT-LLM: between the blocks it names."""
    walk = Walk(payload, 0, size)
    try:
        for _ in walk.steps():
            yield None
        event = json.decode(walk.shell)
        ((keys, runs),) = walk.lists.items()
        name = _LISTS[event["data"]["type"]]
        whole = (
            event["data"][name]
            or not runs
            or skip_space(payload, walk.end) < len(payload)
        )
        if whole or keys != (b'"data"', b'"%b"' % name.encode()):
            raise ValueError("another shape")
    except (*_BROKEN, LookupError):
        yield Piece(bytes(payload))
        return
    yield from _pieces(payload, event, name, runs)


def _pieces(
    payload: bytes | memoryview,
    event: dict[str, Any],
    name: str,
    runs: list[tuple[int, int]],
) -> Iterator[Piece]:
    """The event with each run of the items in its list `name`."""
    data, chain = event["data"], name == "blocks"
    root = chain and not data.get("parent_hash")
    for start, end in runs:
        part = as_list(payload, start, end)
        data[name], goes_on = msgspec.Raw(part), start > runs[0][0]
        yield Piece(json.encode(event), goes_on, root and goes_on)
        if chain:
            try:
                data["parent_hash"] = _BLOCKS.decode(part)[-1].block_hash
            except _BROKEN:  # and so is what it was in
                return


def _cut_batch(payload: bytes, size: int) -> Iterator[Piece]:
    """A batch of vLLM or SGLang: between events, or within one that is large."""
    try:
        batch = _BATCH.decode(payload)
    except _BROKEN:
        yield Piece(payload)
        return
    for start, end in _runs(batch.events, size):
        events = batch.events[start:end]
        if len(events) != 1 or len(memoryview(events[0])) <= size:
            yield Piece(_batch(batch, events))
            continue
        for number, (part, root) in enumerate(_cut_chain(events[0], size)):
            goes_on = number > 0
            yield Piece(_batch(batch, [part]), goes_on, root and goes_on)


def _batch(batch: _Batch, events: Sequence[object]) -> bytes:
    return msgpack.encode([batch.timestamp, events, batch.rank])


def _runs(items: Sequence[msgspec.Raw], size: int) -> Iterator[tuple[int, int]]:
    """Where to cut, so that each run has `size` bytes, or one item."""
    start = length = 0
    for position, item in enumerate(items):
        more = len(memoryview(item))
        if length and length + more > size:
            yield start, position
            start, length = position, 0
        length += more
    if length or not items:
        yield start, len(items)


def _cut_chain(raw: msgspec.Raw, size: int) -> Iterator[tuple[object, bool]]:
    """One stored event as several, each with whether the chain begins at the root.

    Itself if it is no chain of whole blocks.
    """
    try:
        event = _chain(raw)
        hashes = msgpack.decode(event[_HASHES], type=list[object])
        parent = msgpack.decode(event[_PARENT], type=int | bytes | None)
        stride = msgpack.decode(event[_SIZE], type=int)
        tokens = _Tokens(memoryview(event[_TOKENS]))
        by_block = _by_block(event, len(hashes))
    except (*_BROKEN, LookupError):
        yield raw, False
        return
    if not hashes or stride < 1 or tokens.left != len(hashes) * stride:
        yield raw, False
        return
    root = parent is None
    step = max(1, len(hashes) * size // len(memoryview(raw)))
    for start in range(0, len(hashes), step):
        end = start + step
        event[_TOKENS] = tokens.take(len(hashes[start:end]) * stride)
        if not tokens.left:  # earlier than they should: one of them is no token
            end = len(hashes)
        event[_HASHES], event[_PARENT] = hashes[start:end], parent
        event |= {name: values[start:end] for name, values in by_block.items()}
        yield _wire(event), root
        if not tokens.left:
            return
        parent = event[_HASHES][-1]


class _Tokens:
    """An array of token ids, or of pairs of them, in msgpack; `left` are not taken."""

    def __init__(self, raw: memoryview) -> None:
        """Raises ValueError where it is no array."""
        self._raw = raw
        header, self._at = {0xDC: (2, 3), 0xDD: (4, 5)}.get(raw[0], (0, 1))
        self.left = int.from_bytes(raw[1 : 1 + header], "big")
        if not header:
            if raw[0] & 0xF0 != 0x90:
                raise ValueError("no array")
            self.left = raw[0] & 0x0F

    def take(self, count: int) -> msgspec.Raw:
        """The next so many; all that are left where one of them is no token."""
        found = re.compile(_TOKEN + b"{%d}+" % count, re.DOTALL).match(
            self._raw, self._at
        )
        end = found.end() if found else len(self._raw)
        count = count if found else self.left
        part = b"\xdd" + count.to_bytes(4, "big") + self._raw[self._at : end]
        self._at, self.left = end, self.left - count
        return msgspec.Raw(part)


def _chain(raw: msgspec.Raw) -> dict[Any, Any]:
    """The fields of a stored event, those of `_FIELDS` by their place in an array.

    Others by place or by name, as they come. Raises what `_BROKEN` has, or LookupError.
    """
    try:
        event: dict[Any, Any] = dict(_MAP.decode(raw))
        kind = event["type"]
        for place, name in enumerate(_FIELDS, start=1):
            event[place] = event.pop(name)
    except msgspec.ValidationError:
        event = dict(enumerate(_ARRAY.decode(raw)))
        kind = event[0]
    if msgpack.decode(kind) != "BlockStored":
        raise ValueError("no chain")
    return event


def _wire(event: dict[Any, Any]) -> object:
    """The same fields as they came: by name, or by place."""
    if "type" not in event:
        return list(event.values())
    names = dict(enumerate(_FIELDS, start=1))
    return {names.get(name, name): value for name, value in event.items()}


def _by_block(event: dict[Any, Any], blocks: int) -> dict[Any, list[object]]:
    """The further fields that are lists of one value for each block."""
    found = {}
    for name, raw in event.items():
        if name not in (0, _HASHES, _PARENT, _TOKENS, _SIZE, "type"):
            value = msgpack.decode(raw)
            if isinstance(value, list) and len(value) == blocks:
                found[name] = value
    return found
