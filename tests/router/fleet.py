"""A small fleet for tests: real pool, router, feeds and index, hand-moved clock."""

import itertools
import random
from collections.abc import Sequence

from kvindex.blocks import chain, pack_ids
from kvindex.events import AllBlocksCleared, BlockStored, EventBatch, KVEvent
from kvindex.index import Indexes
from kvindex.knowledge import Knowledge
from kvindex.wire import vllm
from router import (
    POLICIES,
    ListedModel,
    Rendering,
    Router,
    RouteRequest,
    Worker,
    WorkerPool,
    WorkerSpec,
)

MODEL = "qwen"
MIB = 1024 * 1024


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def __iadd__(self, seconds: float) -> "Clock":
        self.now += seconds
        return self


class Fleet:
    """Workers w1, w2, ... of one model, ready, with live feeds unless said not."""

    def __init__(
        self,
        count: int = 0,
        *,
        policy: str = "kv_cache_aware",
        block_size: int = 16,
        events: bool = True,
        checked: bool = False,
    ) -> None:
        self.clock = Clock()
        self.events = events
        self.pool = WorkerPool(clock=self.clock, checked=checked)
        self.router = Router(self.pool, POLICIES[policy](random.Random(7), self.clock))
        self.indexes = Indexes(limit_bytes=256 * MIB)
        self._sequences: dict[tuple[str, int], int] = {}
        self._engine_hashes = itertools.count(1)
        for number in range(1, count + 1):
            self.add(f"w{number}", block_size=block_size, events=events)

    def add(
        self,
        url: str,
        *,
        model: str = MODEL,
        block_size: int = 16,
        events: bool = True,
        ranks: Sequence[int] = (0,),
        listing: Sequence[ListedModel] | None = None,
    ) -> Worker:
        """Add a worker that lists `model` and has answered."""
        worker = self.pool.add(WorkerSpec(url=url))
        self.pool.listed(worker, listing or [ListedModel(id=model)])
        self.pool.answered(worker)
        worker.ranks = tuple(ranks)
        worker.block_size = block_size
        for rank in ranks:
            knowledge = worker.knowledge[rank] = Knowledge.open(
                model=worker.base_model or model,
                indexes=self.indexes,
                key=(url, rank),
                clock=self.clock,
                capacity_blocks=8_192,
                block_size=block_size,
                has_source=events,
            )
            if events:
                knowledge.feed.connected()
                self.publish(url, rank=rank)
        return worker

    def worker(self, url: str) -> Worker:
        """The worker at that URL, which must be there."""
        worker = self.pool.get(url)
        assert worker is not None
        return worker

    def publish(self, url: str, *events: KVEvent, rank: int = 0) -> None:
        """One batch of events from a rank, in vLLM's bytes."""
        sequence = self._sequences.get((url, rank), 0)
        self._sequences[url, rank] = sequence + 1
        batch = EventBatch(timestamp=1.0, events=events, rank=rank, undecodable=())
        feed = self.worker(url).knowledge[rank].feed
        feed.receive(sequence, vllm.encode_batch(batch))

    def store(
        self,
        url: str,
        ids: Sequence[int],
        *,
        rank: int = 0,
        adapter: str | None = None,
        medium: str = "GPU",
    ) -> list[int]:
        """The worker stores all full blocks of the ids; their engine hashes."""
        size = self.worker(url).block_size_of(rank)
        count = len(ids) // size
        hashes = [next(self._engine_hashes) for _ in range(count)]
        stored = BlockStored(
            hashes=tuple(hashes),
            parent=None,
            token_ids=pack_ids(ids[: count * size]),
            block_size=size,
            medium=medium,
            adapter=adapter,
            extra_keys=None,
            group=0,
            group_kind="full_attention",
        )
        self.publish(url, stored, rank=rank)
        return hashes

    def clear(self, url: str, *, rank: int = 0) -> None:
        """The worker drops all its blocks."""
        self.publish(url, AllBlocksCleared(), rank=rank)

    def request(
        self,
        ids: Sequence[int],
        *,
        model: str = MODEL,
        salt: str | None = None,
        stream: bool = True,
        exclude: Sequence[str] = (),
        max_tokens: int | None = None,
    ) -> RouteRequest:
        """A request rendered to these ids, hashed as the pool's workers need it."""
        namespace = self.pool.resolve(model, salt)
        packed = pack_ids(ids)
        return RouteRequest(
            model=model,
            renderings={
                (profile, size): Rendering(
                    profile=profile,
                    block_size=size,
                    hashes=chain(packed, size, namespace.root()),
                    token_count=len(ids),
                )
                for profile, size in self.pool.rendering_keys(model)
            },
            prompt_tokens=len(ids),
            max_tokens=max_tokens,
            stream=stream,
            exclude=frozenset(exclude),
        )


def prompt(seed: int, tokens: int) -> list[int]:
    """Token ids that share no block with those of another seed."""
    rng = random.Random(seed)
    return [rng.randrange(150_000) for _ in range(tokens)]


def urls(workers: Sequence[Worker]) -> list[str]:
    """Their URLs, in order."""
    return [worker.url for worker in workers]
