"""What is fuzzed: each decoder, what it may raise, and what must hold of its result."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from bench import _fuzz_inputs as inputs
from bench._fuzz_derender import derender_targets
from bench._fuzz_target import Target
from gateway.request.json_fields import _Scan
from gateway.request.peek import peek_small
from gateway.request.splice import encoded, place
from gateway.request.sse import WholeEvents
from gateway.request.usage import UsageScanner
from gateway.upstreams.response_parser import ResponseParser
from kvindex.blocks import pack_ids
from kvindex.events import EventBatch, UndecodableBatch
from kvindex.feed import Feed, FeedSettings
from kvindex.index import Indexes
from kvindex.wire import sglang, trtllm, vllm
from kvindex.wire.batches import rank_of
from kvindex.wire.cutting import cut
from kvindex.wire.trtllm_drain import RawEvent, split_drain
from render import Renderer, Unrenderable
from simworker.model import demo_model_dir

LIMIT_BYTES = 1 << 20
"""Of a fuzzed feed's index."""
OVERDRAFT = 2 << 20
"""Names of one event are charged when it is over."""
IDS = pack_ids((1, 22, 333))
FIELDS = (("prompt_token_ids",), ("kv_transfer_params", "prompt_token_ids"))
PIECE = 64
NEXT_FRAME = b"\xfe\xfd"


def targets() -> Mapping[str, Target]:
    """By name; loading takes a second."""
    bodies = inputs.captured_bodies()
    renderer = Renderer.load(demo_model_dir())
    payloads = inputs.vllm_payloads()
    frames = [NEXT_FRAME.join(frames) for frames in inputs.captured_frames()]
    batches = {"vllm": (payloads, vllm.decode_batch),
               "sglang": (inputs.sglang_payloads(), sglang.decode_batch)}  # fmt: skip
    found = {}
    for name, (seeds, decode) in batches.items():
        found[name] = Target(seeds, Batch(decode))
        found[f"{name} feed"] = Target(seeds, Feeding(decode))
    return {
        **found,
        **derender_targets(renderer),
        "trtllm": Target(inputs.drains(), drain),
        "trtllm feed": Target(inputs.drains(), drain_to_feed),
        "frames": Target(frames, framed),
        "replay": Target(frames, replayed),
        "peek": Target(bodies, peeked),
        "splice": Target(bodies, spliced),
        "sse": Target(inputs.answers(), streamed),
        "answer": Target(inputs.http_answers(), parsed),
        "chat": Target(bodies, Rendering(renderer.render_chat)),
        "completion": Target(bodies, Rendering(renderer.render_completion)),
    }


class Batch:
    """A batch, or the one error; in pieces, the same."""

    def __init__(self, decode: Callable[[bytes], EventBatch]) -> None:
        self._decode = decode

    def __call__(self, data: bytes) -> None:
        rank_of(data)
        with contextlib.suppress(UndecodableBatch):
            batch = self._decode(data)
            assert all(len(reason) < 100 for reason in batch.undecodable)
            if not batch.undecodable:
                parts = [
                    self._decode(piece.payload) for piece in cut(data, PIECE) if piece
                ]
                assert _said(*parts) == _said(batch)


def _said(*batches: EventBatch) -> tuple[list[object], bytes]:
    """Names and ids of all events, whichever batch they are in."""
    events = [event for batch in batches for event in batch.events]
    names = [name for event in events for name in getattr(event, "hashes", ())]
    return names, b"".join([getattr(event, "token_ids", b"") for event in events])


class Feeding:
    """A feed that goes on for some inputs: its counts stay whole, its memory bound."""

    INPUTS = 200

    def __init__(self, decode: Callable[[bytes], EventBatch]) -> None:
        self._decode = decode
        self._left = 0

    def __call__(self, data: bytes) -> None:
        if not self._left:
            self._left, self._now, self._next = self.INPUTS, 0.0, 0
            self._indexes, self._feed = _feed(self._decode, lambda: self._now)
        self._left -= 1
        self._feed.receive(self._next, data)
        self._next += 1 + data[-1:].count(b"\x00")  # some are lost
        self._now += 0.7
        while self._feed.tick():
            pass
        self._indexes.sweep(500)
        check(self._indexes, self._feed)


def check(indexes: Indexes, feed: Feed) -> None:
    """What always holds."""
    assert indexes.memory.used_bytes <= LIMIT_BYTES + OVERDRAFT
    assert all(index.blocks >= 0 for index in indexes.all)
    if feed.owner is not None:
        assert 0 <= feed.owner.gpu_blocks <= feed.owner.blocks
        assert 0 <= feed.owner.suspect_blocks <= feed.owner.blocks


def _feed(
    decode: Callable[[bytes], EventBatch], clock: Callable[[], float]
) -> tuple[Indexes, Feed]:
    indexes = Indexes(limit_bytes=LIMIT_BYTES)
    feed = Feed(
        model="fuzz",
        indexes=indexes,
        key="w",
        clock=clock,
        decode=decode,
        settings=FeedSettings(suspect_ttl_s=10.0, orphan_blocks=100),
    )
    return indexes, feed


def _drained(data: bytes) -> Iterator[RawEvent]:
    whole = split_drain(data)
    if not whole.undecodable:
        assert split_drain(data, 1_000) == whole
    return iter(whole.events)


def drain(data: bytes) -> None:
    """Events and reasons; in pieces, the same events."""
    for event in _drained(data):
        Batch(trtllm.decode_event)(bytes(event.payload))
    Batch(trtllm.decode_batch)(data)


def drain_to_feed(data: bytes) -> None:
    """A feed under what one drain brought, numbers and all."""
    indexes, feed = _feed(trtllm.decode_event, lambda: 0.0)
    for event in split_drain(data).events:
        feed.receive(event.event_id, event.payload)
    check(indexes, feed)


def framed(data: bytes) -> None:
    """A message, or the one error."""
    with contextlib.suppress(UndecodableBatch):
        topic, sequence, payload = vllm.decode_frames(data.split(NEXT_FRAME))
        assert isinstance(topic + payload, bytes)
        assert 0 <= sequence <= vllm.END_OF_REPLAY


def replayed(data: bytes) -> None:
    """A replay that begins with this message, then live batches."""
    try:
        _, sequence, payload = vllm.decode_frames(data.split(NEXT_FRAME))
    except UndecodableBatch:
        return
    indexes, feed = _feed(vllm.decode_batch, lambda: 0.0)
    feed.can_replay = True
    feed.connected()
    feed.receive(sequence + 5, payload)
    feed.replaying(feed.replay_from or 0)
    for number in (sequence, sequence + 1, sequence + 3, sequence + 3, 0):
        feed.replayed(number, payload)
    feed.receive(sequence + 6, payload)
    feed.replay_ended(complete=bool(sequence % 2))
    check(indexes, feed)


def peeked(data: bytes) -> None:
    """Fields or a problem; the scan for large bodies finds the same fields."""
    small = peek_small(data)
    scan = _Scan(data, frozenset(("model", "messages", "stream")))
    assert scan.run(float("inf"))
    where = scan.found.get("model")
    if small.model is not None and where and not scan.problem:
        value = msgspec.json.decode(data[slice(*where)])
        assert value == small.model


def spliced(data: bytes) -> None:
    """A body with ids in it is the body, with the ids in it."""
    try:
        decoded: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(decoded, dict):
        return
    for field in FIELDS:
        edit = place(data, decoded, field)
        if edit is None:
            continue
        after = msgspec.json.decode(edit.apply(data, encoded(IDS)))
        name, *rest = field
        value = after.pop(name)
        assert (value[rest[0]] if rest else value) == [1, 22, 333]
        assert after == {k: v for k, v in decoded.items() if k != name}


def streamed(data: bytes) -> None:
    """However a stream is cut: no byte is lost, and usage is the same."""
    whole = UsageScanner()
    whole.feed(data)
    for size in (1, 7, 4_096):
        if size == 1 and len(data) > 4_096:
            continue
        events, scanner, out = WholeEvents(max_held=300), UsageScanner(), b""
        for start in range(0, len(data), size):
            out += events.feed(data[start : start + size])
            scanner.feed(data[start : start + size])
        assert out + events.rest() == data
        assert scanner.usage is None or scanner.usage.prompt_tokens >= 0
    assert whole.usage is None or whole.usage.prompt_tokens >= 0


def parsed(data: bytes) -> None:
    """An answer, or the one error; never more body than there were bytes."""
    for size in (1, 11, len(data) or 1):
        parser, body = ResponseParser(answers_head=False), 0
        for start in range(0, len(data), size):
            body += sum(map(len, parser.feed(data[start : start + size])))
            if parser.malformed is not None:
                break
        else:
            parser.eof()
        assert body <= len(data)
        assert not parser.complete or parser.status >= 200


class Rendering:
    """Ids, or the one error."""

    def __init__(self, render: Callable[[bytes], object]) -> None:
        self._render = render

    def __call__(self, data: bytes) -> None:
        with contextlib.suppress(Unrenderable):
            self._render(data)
