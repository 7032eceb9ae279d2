"""A worker with a real cache whose event stream can go wrong, for model tests.

Paths are labels from the root to a block. The cache is a dictionary from path to the
media it is in; events are published one to a batch, numbered, and kept for a replay.
"""

import json
from collections.abc import Callable
from functools import cache, partial

import msgspec

from kvindex.events import (
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    EngineHash,
    EventBatch,
    KVEvent,
    UndecodableBatch,
)
from kvindex.wire import vllm
from kvindex.wire.trtllm import decode_event, encode_event
from kvindex.wire.trtllm_hashes import v1_block_key
from tests.kvindex.belief import SIZE, Path, ids, own_hash
from tests.kvindex.engine import CLEARED

DECODERS: dict[str, Callable[[bytes], EventBatch]] = {
    "vllm": vllm.decode_batch,
    "trtllm": partial(decode_event, algorithm="v1_block_key"),
}
KEPT = 12
"""Batches in the replay buffer."""


@cache
def trtllm_name(path: Path) -> int:
    """TensorRT-LLM's name of the block at the end of a path."""
    label = path[-1]
    block = range(label * 100, label * 100 + SIZE)
    return v1_block_key(block, trtllm_name(path[:-1]) if len(path) > 1 else 0)


class FaultyWorker:
    """One engine's cache and the batches that tell of it."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.cache: dict[Path, set[str]] = {}
        self.next = 0
        self.kept: dict[int, bytes] = {}
        self.process = 0
        self.paths: dict[EngineHash, Path] = {}

    def name(self, path: Path) -> int:
        """The engine's name of a block."""
        trtllm = self.engine == "trtllm"
        name = trtllm_name(path) if trtllm else own_hash(path) ^ 0x5555
        self.paths[name] = path
        return name

    def told_by(self, content: bytes) -> set[Path]:
        """The blocks that a batch says are stored."""
        try:
            events = DECODERS[self.engine](content).events
        except UndecodableBatch:
            return set()
        stores = [event for event in events if isinstance(event, BlockStored)]
        return {self.paths[name] for e in stores for name in e.hashes}

    def batch(self, *events: KVEvent) -> tuple[int, bytes]:
        """The next batch: number and bytes."""
        if self.engine == "trtllm":
            (event,) = events
            content = json.dumps(encode_event(event, self.next)).encode()
        else:
            stamp = self.process * 1000.0 + self.next
            content = vllm.encode_batch(
                EventBatch(timestamp=stamp, events=events, rank=0)
            )
        self.kept[self.next] = content
        self.kept.pop(self.next - KEPT, None)
        self.next += 1
        return self.next - 1, content

    def start(self) -> list[tuple[int, bytes]]:
        """A new process: empty cache, numbers from 0."""
        self.cache, self.kept, self.next = {}, {}, 0
        self.process += 1
        if self.engine == "trtllm":
            return [self.batch(CacheCreated(blocks_per_level=(9, 9)))]
        return [self.batch(CLEARED)]

    def store(self, path: Path) -> list[tuple[int, bytes]]:
        """Compute what of a path is not on GPU yet."""
        batches = []
        for end in range(1, len(path) + 1):
            part = path[:end]
            media = self.cache.setdefault(part, set())
            if media == {"CPU"} and self.engine == "trtllm":
                name, self.cache[part] = self.name(part), {"GPU"}
                move = BlockUpdated(hash=name, medium_before="CPU", medium="GPU")
                batches.append(self.batch(move))
            elif "GPU" not in media:
                media.add("GPU")
                batches.append(self.batch(self.stored(part)))
        return batches

    def stored(self, path: Path, parent: int | None = None) -> BlockStored:
        """The event of one block, or of a lie about its parent."""
        if parent is None and len(path) > 1:
            parent = self.name(path[:-1])
        return BlockStored(
            hashes=(self.name(path),),
            parent=parent,
            token_ids=ids(path[-1:]),
            block_size=SIZE,
            medium="GPU",
        )

    def leaves(self, medium: str) -> list[Path]:
        """Blocks in a medium that no other there depends on."""
        there = {path for path, media in self.cache.items() if medium in media}
        return sorted(there - {path[:-1] for path in there})

    def evict(self, path: Path, medium: str) -> list[tuple[int, bytes]]:
        """A leaf goes."""
        self.cache[path].discard(medium)
        if not self.cache[path]:
            del self.cache[path]
        names, any_medium = (self.name(path),), self.engine == "trtllm"
        event = BlockRemoved(hashes=names, medium=medium, any_medium=any_medium)
        return [self.batch(event)]

    def offload(self, path: Path) -> list[tuple[int, bytes]]:
        """A leaf on GPU moves to the host."""
        self.cache[path] = {"CPU"}
        name = self.name(path)
        if self.engine == "trtllm":
            move = BlockUpdated(hash=name, medium_before="GPU", medium="CPU")
            return [self.batch(move)]
        host = BlockStored(
            hashes=(name,),
            parent=self.name(path[:-1]) if len(path) > 1 else None,
            token_ids=ids(path[-1:]),
            block_size=SIZE,
            medium="CPU",
        )
        return [self.batch(host, BlockRemoved(hashes=(name,), medium="GPU"))]

    def reset(self) -> list[tuple[int, bytes]]:
        """The cache is reset; TensorRT-LLM announces each block's removal."""
        if self.engine == "vllm":
            self.cache = {}
            return [self.batch(CLEARED)]
        batches = []
        while self.cache:
            path = max(self.cache, key=len)
            batches += self.evict(path, next(iter(self.cache[path])))
        return batches

    def recreate(self) -> list[tuple[int, bytes]]:
        """The cache is made anew, which vLLM tells as a reset."""
        self.cache = {}
        trtllm = self.engine == "trtllm"
        created = CacheCreated(blocks_per_level=(9, 9))
        return [self.batch(created if trtllm else CLEARED)]

    def broken(self, content: bytes) -> bytes:
        """The batch, with events that say not which blocks they are about."""
        if self.engine == "trtllm":
            event = json.loads(content)
            event["data"] |= dict.fromkeys(("blocks", "block_hashes", "block_hash"))
            return json.dumps(event).encode()
        stamp, events, rank = msgspec.msgpack.decode(content)
        events = [event | {"block_hashes": None} for event in events]
        return msgspec.msgpack.encode([stamp, events, rank])

    def evict_or_store(self) -> list[tuple[int, bytes]]:
        """Anything that makes a batch."""
        leaf = self.leaves("GPU")
        return self.evict(leaf[0], "GPU") if leaf else self.store((1,))
