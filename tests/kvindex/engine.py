"""What the tests of this room share: a clock, event streams, captured traffic."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvindex.blocks import Namespace, chain, pack_ids
from kvindex.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineHash,
    EventBatch,
    ExtraKeys,
    KVEvent,
)
from kvindex.feed import Feed, FeedSettings
from kvindex.index import Indexes, PrefixIndex
from kvindex.owner import Owner
from kvindex.wire.vllm import END_OF_REPLAY, decode_frames, encode_batch

DATA = Path(__file__).parent.parent / "data" / "vllm"
MODEL = "m"
ROOT = Namespace(model=MODEL).root()


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def ids_of(*blocks: int, size: int = 16) -> bytes:
    """Packed ids of blocks, each filled with ids of its own number."""
    return pack_ids(1000 * block + i for block in blocks for i in range(size))


def own(*blocks: int, size: int = 16, root: int = ROOT) -> list[int]:
    """The own hashes of a prompt of such blocks."""
    return chain(ids_of(*blocks, size=size), size, root)


def stored(
    *blocks: int,
    names: tuple[EngineHash, ...] | None = None,
    parent: EngineHash | None = None,
    size: int = 16,
    medium: str | None = "GPU",
    group: int | None = None,
    group_kind: str | None = None,
    adapter: str | None = None,
    extra_keys: tuple[ExtraKeys, ...] | None = None,
    locality: str | None = None,
) -> BlockStored:
    """Consecutive blocks; without `names` a block's number is its engine hash."""
    return BlockStored(
        hashes=blocks if names is None else names,
        parent=parent,
        token_ids=ids_of(*blocks, size=size),
        block_size=size,
        medium=medium,
        group=group,
        group_kind=group_kind,
        adapter=adapter,
        extra_keys=extra_keys,
        locality=locality,
    )


def removed(
    *names: EngineHash,
    medium: str | None = "GPU",
    group: int | None = None,
    locality: str | None = None,
) -> BlockRemoved:
    """One copy of each named block is gone."""
    return BlockRemoved(hashes=names, medium=medium, group=group, locality=locality)


CLEARED = AllBlocksCleared()


def payload(*events: KVEvent) -> bytes:
    """One batch as a worker sends it."""
    return encode_batch(EventBatch(timestamp=1.0, events=events, rank=0))


class Stream:
    """A feed, and a worker that counts its batches."""

    def __init__(
        self,
        *,
        block_size: int | None = None,
        limit_bytes: int = 1 << 30,
        settings: FeedSettings | None = None,
        has_source: bool = True,
    ) -> None:
        self.clock = Clock()
        self.indexes = Indexes(limit_bytes=limit_bytes)
        self.changes = 0
        self.emptied = 0
        self.next = 0
        self.feed = Feed(
            model=MODEL,
            indexes=self.indexes,
            key=("http://w1", 0),
            clock=self.clock,
            settings=settings,
            block_size=block_size,
            on_change=self._on_change,
            on_restart=self._on_restart,
            has_source=has_source,
        )

    def _on_change(self, feed: Feed) -> None:
        self.changes += 1

    def _on_restart(self) -> None:
        self.emptied += 1

    def send(self, *events: KVEvent) -> None:
        """The next batch, received."""
        self.feed.receive(self.next, payload(*events))
        self.next += 1

    def lose(self, batches: int = 1) -> None:
        """So many batches get lost."""
        self.next += batches

    @property
    def index(self) -> PrefixIndex:
        """The feed's index."""
        assert self.feed.index is not None
        return self.feed.index

    @property
    def owner(self) -> Owner:
        """The feed's owner."""
        assert self.feed.owner is not None
        return self.feed.owner

    def held(self, *blocks: int, size: int = 16, root: int = ROOT) -> int:
        """Leading blocks of such a prompt that the index says are held."""
        hashes = own(*blocks, size=size, root=root)
        return self.index.match(hashes, [self.owner])[0].blocks


def case_file(name: str) -> Any:
    """A captured JSON file."""
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


def captured(*names: str) -> Iterator[tuple[int, bytes, Any]]:
    """(sequence, payload, what it holds) of each batch in captured streams."""
    for name in names:
        for line in gzip.decompress((DATA / f"{name}.jsonl.gz").read_bytes()).split(
            b"\n"
        ):
            if not line:
                continue
            message = json.loads(line)
            frames = [bytes.fromhex(frame) for frame in message["frames_hex"]]
            _, sequence, content = decode_frames(frames)
            if sequence != END_OF_REPLAY:
                yield sequence, content, message["decoded"]
