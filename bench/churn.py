"""Memory of the index under churn, and how long clearing a large owner takes.

Each round stores and removes random prefixes through a feed, in a process that has what
a gateway's has; the resident memory after it should be that of the round before. Memory
that blocks take must come back: all but a few megabytes, for Python returns memory by
the megabyte, and which of them are in use at a round's end changes.
"""

import argparse
import gc
import importlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.housekeeping import sweep
from kvindex.blocks import pack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.wire.vllm import encode_batch
from render import Renderer
from simworker.model import demo_model_dir

BLOCK = 16
LONG = 64
"""Blocks of one prefix."""
SLICE = 1_024
PAGE_BYTES = 4_096


def run(argv: Sequence[str]) -> None:
    """Print resident memory round by round, and the longest steps of a clearing."""
    parser = argparse.ArgumentParser(prog="python -m bench churn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    importlib.import_module("gateway.app")
    renderer = Renderer.load(demo_model_dir())
    print(f"with {renderer.encoder_name}: {resident_bytes() / 1e6:8.1f} MB resident")
    churn = Churn()
    sizes = []
    for number in range(1, options.rounds + 1):
        churn.round(options.blocks)
        sizes.append(resident_bytes())
        print(f"round {number:2}: {sizes[-1] / 1e6:8.1f} MB resident")
    if len(sizes) > 1:
        print(f"last round against the second: {sizes[-1] / sizes[1]:.3f}")
    churn.clearing(options.blocks)


def resident_bytes() -> int:
    """Memory of this process as the system counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


class Churn:
    """One worker's feed."""

    def __init__(self) -> None:
        self._rng = random.Random(1)
        self._indexes = Indexes(limit_bytes=1 << 40)
        self._feed = Feed(
            model="bench", indexes=self._indexes, key="w", clock=time.monotonic
        )
        self._feed.sliced = True
        self._next = 0

    def round(self, blocks: int) -> None:
        """Store so many blocks, then remove them all, deepest first."""
        seeds = [self._store() for _ in range(blocks // LONG)]
        for seed in seeds:  # names kept here would be taken for the index's memory
            self._send(BlockRemoved(hashes=_names(seed)[::-1], medium="GPU"))
        self._sweep()

    def _store(self) -> int:
        seed = self._rng.getrandbits(64)
        names = _names(seed)
        ids = pack_ids(self._rng.randrange(1 << 17) for _ in range(LONG * BLOCK))
        event = BlockStored(hashes=names, token_ids=ids, block_size=BLOCK, medium="GPU")
        self._send(event)
        return seed

    def _send(self, event: BlockStored | BlockRemoved) -> None:
        batch = EventBatch(timestamp=0.0, events=(event,), rank=0)
        self._feed.receive(self._next, encode_batch(batch))
        self._next += 1
        while self._feed.work(SLICE):
            pass

    def _sweep(self) -> float:
        """Free what is left over; the longest step in milliseconds."""
        longest = 0.0
        left = True
        while left:
            longest = max(longest, cpu_ms(lambda: self._feed.tick()))
            start = time.thread_time()
            left = sweep(self._indexes)
            longest = max(longest, (time.thread_time() - start) * 1e3)
        return longest

    def clearing(self, blocks: int) -> None:
        """Clear an owner of so many blocks, then retire one, and time each step.

        Objects are frozen for the collector, as in the gateway.
        """
        for what, act in (
            ("clear", lambda: self._feed.restarted("bench")),
            ("retire", self._feed.retire),
        ):
            self._next = 0
            for _ in range(blocks // LONG):
                self._store()
            gc.collect()
            gc.freeze()
            longest = max(cpu_ms(act), cpu_ms(lambda: self._feed.work(SLICE)))
            longest = max(longest, self._sweep())
            print(f"{what:6} {blocks} blocks: longest step {longest:.2f} ms of CPU")


def _names(seed: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.getrandbits(64) for _ in range(LONG))


def cpu_ms(call: Callable[[], object]) -> float:
    """CPU time of one call, in milliseconds."""
    start = time.thread_time()
    call()
    return (time.thread_time() - start) * 1e3
