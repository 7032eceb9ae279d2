"""The indexes that are compared: ours, and Dynamo's by its Python binding.

Each is given events as its engines send them, bytes, so that decoding is part of what
is measured: vLLM's MessagePack for ours, JSON for Dynamo's. A block's content enters
ours as 16 token ids made of its 64 bits, Dynamo's as the content hash that it is.
"""

import json
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bench._index_work import Removed, Stored


class Side(Protocol):
    """One index. `stored`, `removed` and `query` prepare and are not timed."""

    chains: bool
    """Must content be chained before it can be matched? Dynamo's tree does that."""

    def stored(self, event: Stored) -> Any:
        """An event as bytes, and whose it is."""

    def removed(self, event: Removed) -> Any:
        """An event as bytes, and whose it is."""

    def apply(self, prepared: Any) -> None:
        """Take one event in."""

    def flush(self) -> None:
        """Return when all that came in is in the index."""

    def prompt(self, contents: list[int]) -> Any:
        """A prompt as the index's caller has it."""

    def chain(self, prompt: Any, block_size: int = 16) -> Any:
        """The query for a prompt."""

    def match(self, query: Any) -> Any:
        """Which worker holds how much of it."""

    def held(self, answer: Any) -> dict[int, int]:
        """The answer as worker -> blocks, without those that hold none."""

    def hashes(self, ids: Sequence[int], block_size: int) -> Sequence[int]:
        """The block hashes of a prompt of token ids."""


class Ours:
    """A feed per worker of 16-token blocks, all in one index."""

    chains = True

    def __init__(self, workers: int) -> None:
        from kvindex.blocks import Namespace, chain
        from kvindex.feed import Feed
        from kvindex.index import Indexes

        self._chain, self._root = chain, Namespace(model="bench").root()
        self._indexes = Indexes(limit_bytes=1 << 40)
        self._feeds = [
            Feed(
                model="bench",
                indexes=self._indexes,
                key=worker,
                clock=time.monotonic,
                block_size=16,
            )
            for worker in range(workers)
        ]
        self._index = self._indexes.get("bench", 16)
        self._owners = [feed.owner for feed in self._feeds if feed.owner is not None]
        self._sequences = [0] * workers

    def stored(self, event: Stored) -> tuple[int, int, bytes]:
        """A batch of one event."""
        from kvindex.events import BlockStored

        names, contents = zip(*event.blocks, strict=True)
        ids = b"".join(map(_token_ids, contents))
        return self._batch(
            event.worker,
            BlockStored(
                hashes=names,
                parent=event.parent,
                token_ids=ids,
                block_size=16,
                medium="GPU",
            ),
        )

    def removed(self, event: Removed) -> tuple[int, int, bytes]:
        """A batch of one event."""
        from kvindex.events import BlockRemoved

        removed = BlockRemoved(hashes=tuple(event.names), medium="GPU")
        return self._batch(event.worker, removed)

    def _batch(self, worker: int, event: Any) -> tuple[int, int, bytes]:
        from kvindex.events import EventBatch
        from kvindex.wire.vllm import encode_batch

        number = self._sequences[worker]
        self._sequences[worker] = number + 1
        batch = EventBatch(timestamp=0.0, events=(event,), rank=0)
        return worker, number, encode_batch(batch)

    def apply(self, prepared: tuple[int, int, bytes]) -> None:
        """As it comes off a socket."""
        worker, number, payload = prepared
        self._feeds[worker].receive(number, payload)

    def flush(self) -> None:
        """What the gateway does once a second."""
        for feed in self._feeds:
            feed.tick()
        while self._indexes.sweep(2_000):
            pass

    def prompt(self, contents: list[int]) -> bytes:
        """Token ids, as they are rendered."""
        return b"".join(map(_token_ids, contents))

    def chain(self, prompt: bytes, block_size: int = 16) -> list[int]:
        """Chained block hashes."""
        return self._chain(prompt, block_size, self._root)

    def match(self, query: list[int]) -> Any:
        """What each owner holds."""
        return self._index.match(query, self._owners)

    def held(self, answer: Any) -> dict[int, int]:
        """Workers in order of owners."""
        return {worker: h.blocks for worker, h in enumerate(answer) if h.blocks}

    def hashes(self, ids: Sequence[int], block_size: int) -> Sequence[int]:
        """From a list of integers; a rendering has them packed already."""
        from kvindex.blocks import pack_ids

        return self._chain(pack_ids(ids), block_size, self._root)


class Dynamo:
    """`RadixTree` of ai-dynamo-runtime: a thread of its own, a queue before it."""

    chains = False

    def __init__(self, workers: int) -> None:
        from dynamo._core import (  # type: ignore[import-not-found,unused-ignore]
            RadixTree,
            compute_block_hash_for_seq,
        )

        self._tree = RadixTree()
        self._hashes = compute_block_hash_for_seq
        self._events = 0

    def stored(self, event: Stored) -> tuple[int, bytes]:
        """One event."""
        blocks = [{"block_hash": n, "tokens_hash": c} for n, c in event.blocks]
        data = {"parent_hash": event.parent, "blocks": blocks}
        return self._event(event.worker, {"stored": data})

    def removed(self, event: Removed) -> tuple[int, bytes]:
        """One event."""
        return self._event(event.worker, {"removed": {"block_hashes": event.names}})

    def _event(self, worker: int, data: dict[str, Any]) -> tuple[int, bytes]:
        self._events += 1
        event = {"event_id": self._events, "dp_rank": 0, "data": data}
        return worker, json.dumps(event).encode()

    def apply(self, prepared: tuple[int, bytes]) -> None:
        """Queue it."""
        self._tree.apply_event(*prepared)

    def flush(self) -> None:
        """A query waits for what was queued before it."""
        self._tree.find_matches([1])

    def prompt(self, contents: list[int]) -> "array[int]":
        """Content hashes."""
        return array("Q", contents)

    def chain(self, prompt: "array[int]", block_size: int = 16) -> list[int]:
        """Nothing to do: a list as fresh as ours."""
        return prompt.tolist()

    def match(self, query: list[int]) -> Any:
        """Scores by (worker, rank)."""
        return self._tree.find_matches(query).scores

    def held(self, answer: Any) -> dict[int, int]:
        """Rank 0 of each worker is all there is."""
        return {
            key[0] if isinstance(key, tuple) else key: n for key, n in answer.items()
        }

    def hashes(self, ids: Sequence[int], block_size: int) -> Sequence[int]:
        """Of each block apart, not chained."""
        hashes: Sequence[int] = self._hashes(ids, block_size)
        return hashes


def _token_ids(content: int) -> bytes:
    """A block of 16 token ids made of its content."""
    return content.to_bytes(8, "little") * 8


MAKERS: dict[str, Callable[[int], Side]] = {"ours": Ours, "dynamo": Dynamo}
"""By the number of workers."""
