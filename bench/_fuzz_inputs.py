"""Inputs for fuzzing: well-formed ones to begin with, and ways to break them.

Bytes are flipped, cut, doubled and joined with others; what is JSON or MessagePack is
also taken apart, changed value by value and put together again, so that it gets past
the first check of a decoder.
"""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kvindex.blocks import pack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EventBatch,
    KVEvent,
)
from kvindex.wire import sglang, vllm
from kvindex.wire.trtllm_encoding import encode_event

DATA = Path(__file__).parents[1] / "tests" / "data" / "vllm"
LARGEST = 64 * 1024
"""Bytes of an input at most."""
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**63, 2**64 - 1, -(2**63), 1e308,
    float("inf"), "", "GPU", "\x00", "é" * 40, "\U0001f600", "x" * 5000, [], {}, [[]],
    {"type": "image_url"}, "BlockStored", "AllBlocksCleared", [None] * 50,
    {"text": None}, [[[[[[[[1]]]]]]]], b"", b"\xff" * 32,
)  # fmt: skip
PIECES = (
    b"\x00", b"\xff", b"\n\n", b"\r\n\r\n", b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u",
    b"\\ud800", b"data: ", b"0\r\n\r\n", b"-1", b"1e999", b"\xc1", b"\xdc\xff\xff",
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 600, b"[" * 2000,
    b'"usage":{', b"\xed\xa0\x80", b"Content-Length: 5\r\n",
)  # fmt: skip


def mutated(rng: random.Random, seed: bytes, other: bytes) -> bytes:
    """A broken version of `seed`, perhaps with parts of `other`."""
    if rng.random() < 0.5:
        seed = _with_other_values(rng, seed)
    for _ in range(rng.choice((0, 1, 1, 2, 4, 16))):
        seed = rng.choice(CHANGES)(rng, seed, other)
    return seed[:LARGEST]


def _flip(rng: random.Random, data: bytes, _: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _cut(rng: random.Random, data: bytes, _: bytes) -> bytes:
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def _truncate(rng: random.Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _double(rng: random.Random, data: bytes, _: bytes) -> bytes:
    start, end = _range(rng, data)
    times = rng.choice((1, 1, 2, 50))
    return data[:end] + data[start:end] * times + data[end:]


def _insert(rng: random.Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(PIECES) + data[at:]


def _join(rng: random.Random, data: bytes, other: bytes) -> bytes:
    at, (start, end) = rng.randrange(len(data) + 1), _range(rng, other)
    return data[:at] + other[start:end] + data[at:]


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 4, 16, 200)))


CHANGES: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (
    _flip, _flip, _cut, _truncate, _double, _insert, _join,
)  # fmt: skip


def _with_other_values(rng: random.Random, data: bytes) -> bytes:
    """The same structure with some values changed; as it is where it has none."""
    for codec in (msgspec.json, msgspec.msgpack):
        try:
            value = codec.decode(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                value = _changed(rng, value, rng.randrange(1, 7))
            encoded: bytes = codec.encode(value)
            return encoded
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            continue
    return data


def _changed(rng: random.Random, value: Any, depth: int) -> Any:
    if depth and isinstance(value, dict) and value:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return value | {key: _changed(rng, value[key], depth - 1)}
    if depth and isinstance(value, list) and value:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at:] * rng.choice((0, 2)) + value[at : at + 1]
        return [*value[:at], _changed(rng, value[at], depth - 1), *value[at + 1 :]]
    return rng.choice(ODD)


def captured_frames() -> list[list[bytes]]:
    """Messages of real vLLM workers."""
    found = []
    for path in sorted(DATA.glob("w*_kv_events_*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            frames = json.loads(line)["frames_hex"]
            found.append([bytes.fromhex(frame) for frame in frames])
    return found


def array_payloads() -> list[bytes]:
    """Batches as vLLM 0.9 to 0.23 send them."""
    path = DATA / "legacy_array_payloads_synthetic.json.gz"
    cases = json.loads(gzip.decompress(path.read_bytes()))
    return [bytes.fromhex(case["payload_hex"]) for case in cases]


def captured_bodies() -> list[bytes]:
    """Bodies of chats and completions."""
    found = []
    for name in ("w1_chat_cases", "w1_other_cases"):
        text = gzip.decompress((DATA / f"{name}.json.gz").read_bytes())
        for case in json.loads(text)["cases"].values():
            exchanges = [case, *(c for c in case.values() if isinstance(c, dict))]
            bodies = [exchange.get("request") for exchange in exchanges]
            found += [json.dumps(body).encode() for body in bodies if body]
    return found


def captured_exchanges(path: str) -> list[bytes]:
    """Bodies that were sent to one path, in all captures of workers."""
    found = []
    for name in ("w1_chat_cases", "w1_other_cases"):
        text = gzip.decompress((DATA / f"{name}.json.gz").read_bytes())
        for case in json.loads(text)["cases"].values():
            steps = [case, *(one for one in case.values() if isinstance(one, dict))]
            bodies = [one["request"] for one in steps if one.get("path") == path]
            found += [json.dumps(one).encode() for one in bodies]
    return found


def _events() -> tuple[KVEvent, ...]:
    ids = pack_ids(range(48))
    return (
        BlockStored(hashes=(1, 2, 3), token_ids=ids, block_size=16, medium="GPU"),
        BlockStored(hashes=(4,), parent=3, token_ids=ids[:64], block_size=16,
                    medium="CPU", adapter="a", group=1),
        BlockStored(hashes=(9, 8, 7), token_ids=ids, block_size=16,
                    extra_keys=(("salt",), None, None)),
        BlockRemoved(hashes=(2, 3), medium="GPU"),
        AllBlocksCleared(),
    )  # fmt: skip


def sglang_payloads() -> list[bytes]:
    """Batches as SGLang sends them."""
    batch = EventBatch(timestamp=1.0, events=_events(), rank=0)
    ways = [(pairs, arrays) for pairs in (False, True) for arrays in (False, True)]
    return [sglang.encode_batch(batch, pairs=p, arrays=a) for p, a in ways]


def drains() -> list[bytes]:
    """Answers of TensorRT-LLM's drain."""
    events: list[KVEvent] = [
        CacheCreated(blocks_per_level=(100, 50)),
        *(event for event in _events() if not isinstance(event, AllBlocksCleared)),
        BlockUpdated(hash=1, medium_before="GPU", medium="CPU"),
    ]
    plain = [encode_event(event, number) for number, event in enumerate(events)]
    ranked = [
        encode_event(event, number, rank=1, window_size=64, hash_algo="v1")
        for number, event in enumerate(events)
    ]
    return [json.dumps(drained).encode() for drained in (plain, ranked)]


def vllm_payloads() -> list[bytes]:
    """Batches as vLLM sends them, old and new."""
    made = vllm.encode_batch(EventBatch(timestamp=1.0, events=_events(), rank=0))
    return [made, *array_payloads(), *(frames[-1] for frames in captured_frames())]


def answers() -> list[bytes]:
    """Streams of events."""
    piece = b'data: {"choices":[{"delta":{"content":"a \\"usage\\": b"}}]}\n\n'
    usage = (
        b'data: {"usage": {"prompt_tokens": 9, "completion_tokens": 2, '
        b'"prompt_tokens_details": {"cached_tokens": 4}}}\r\n\r\n'
    )
    return [piece * 3 + usage + b"data: [DONE]\n\n", b": ping\r\r" + usage + piece]


def http_answers() -> list[bytes]:
    """Answers as they are on the connection."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello",
        chunked + b"5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nTrailer: v\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not\r\nConnection: close\r\n\r\nx",
        b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ]
