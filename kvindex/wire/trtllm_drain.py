"""TensorRT-LLM's drain taken apart into its events, in steps.

An event names each token of a prompt, so that an answer may have tens of megabytes, and
one event nearly all of them: neither is decoded at once. Not here: what an event says.
"""

from collections.abc import Iterator

import msgspec
from msgspec import json

from kvindex.wire.batches import BROKEN
from kvindex.wire.json_walk import (
    STEP_BYTES,
    Walk,
    read_items,
    skip_comma,
    skip_space,
)

NO_EVENT = "event_id"
NO_LIST = "body"


class RawEvent(msgspec.Struct, frozen=True):
    """One event as its JSON, a view of the answer where it is large; `rank` is the
    attention-DP rank."""

    rank: int
    event_id: int
    payload: bytes | memoryview


class Drain(msgspec.Struct, frozen=True):
    """The events of one answer in their order; a reason for each that is none."""

    events: tuple[RawEvent, ...] = ()
    undecodable: tuple[str, ...] = ()


class _Head(msgspec.Struct):
    event_id: int
    attention_dp_rank: int | None = None


_LIST = json.Decoder(list[msgspec.Raw])
_HEAD = json.Decoder(_Head)


def split_drain(body: bytes | bytearray, size: int = STEP_BYTES) -> Drain:
    """The events of one answer. Lists in the list are taken for part of it."""
    items = list(read_drain(body, size))
    return Drain(
        tuple([item for item in items if isinstance(item, RawEvent)]),
        tuple([item for item in items if isinstance(item, str)]),
    )


def is_list(body: bytes | bytearray) -> bool:
    """Does it at least begin as one?"""
    at = skip_space(body, 0)
    return body[at : at + 1] == b"["


def read_drain(
    body: bytes | bytearray, size: int = STEP_BYTES
) -> Iterator[RawEvent | str | None]:
    """Each event, or a reason for what is none; None where a step brought nothing.

    What comes behind broken JSON is lost, as one reason.
    """
    try:
        yield from _read(body, size)
    except BROKEN:
        yield NO_LIST


def _read(body: bytes | bytearray, size: int) -> Iterator[RawEvent | str | None]:
    if not is_list(body):
        raise ValueError("no list")
    at, depth = skip_space(body, 0) + 1, 1
    while depth:
        raws, at = read_items(body, at, size)
        yield None
        for raw in raws:
            yield from _flat(raw)
        if raws:
            continue
        at = skip_space(body, at)
        following = body[at : at + 1]
        if following == b"{":
            walk = Walk(body, at, size)
            for _ in walk.steps():
                yield None
            yield _event(walk.shell, memoryview(body)[at : walk.end])
            at = skip_comma(body, walk.end)
        elif following in (b"[", b"]") and following:
            depth += 1 if following == b"[" else -1
            at = at + 1 if following == b"[" or not depth else skip_comma(body, at + 1)
        else:
            raise ValueError("no list")
    if skip_space(body, at) < len(body):
        raise ValueError("more than a list")


def _flat(raw: msgspec.Raw) -> Iterator[RawEvent | str | None]:
    text = memoryview(raw)
    if bytes(text[:1]) != b"[":
        yield _event(raw, bytes(text))
        return
    yield None
    for item in _LIST.decode(raw):
        yield from _flat(item)


def _event(
    head: msgspec.Raw | bytearray, payload: bytes | memoryview
) -> RawEvent | str:
    """Whose event it is, and its number; all of it but its lists is in `head`."""
    try:
        found = _HEAD.decode(head)
    except BROKEN:
        return NO_EVENT
    return RawEvent(found.attention_dp_rank or 0, found.event_id, payload)
