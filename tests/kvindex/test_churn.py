"""Memory under churn: what blocks took comes back (ai-dynamo/dynamo#10774)."""

import gc
import random
import sys
import tracemalloc

from kvindex.blocks import pack_ids
from kvindex.events import BlockStored
from tests.kvindex.engine import Stream, removed

PREFIXES = 40
DEPTH = 20


def churn(stream: Stream, rng: random.Random) -> None:
    """Random prefixes are stored, and all of them removed."""
    names = []
    for _ in range(PREFIXES):
        run = tuple(rng.getrandbits(64) for _ in range(DEPTH))
        ids = pack_ids(rng.randrange(1 << 17) for _ in range(16 * DEPTH))
        stream.send(BlockStored(hashes=run, token_ids=ids, block_size=16))
        names.append(run)
    for run in names:
        stream.send(removed(*reversed(run)))


def test_memory_is_flat_and_comes_back() -> None:
    """Ten rounds end where the second did, and little is left of what was held."""
    stream, rng = Stream(), random.Random(2)
    rounds = []
    tracemalloc.start()
    for _ in range(10):
        churn(stream, rng)
        gc.collect()
        rounds.append(tracemalloc.get_traced_memory()[0])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stream.owner.blocks == stream.index.blocks == 0
    assert rounds[-1] <= 1.1 * rounds[1]
    assert rounds[-1] < peak / 4


def test_a_restart_gives_memory_back() -> None:
    """In slices, by ticks and sweeps."""
    stream, rng = Stream(), random.Random(2)
    sizes = []
    for _ in range(5):
        for _ in range(PREFIXES):
            run = tuple(rng.getrandbits(64) for _ in range(DEPTH))
            ids = pack_ids(rng.randrange(1 << 17) for _ in range(16 * DEPTH))
            stream.send(BlockStored(hashes=run, token_ids=ids, block_size=16))
        stream.feed.restarted("process start time changed")
        while stream.feed.tick() or stream.indexes.sweep(100):
            pass
        gc.collect()
        sizes.append(sys.getallocatedblocks())
    assert stream.indexes.memory.used_bytes == 0
    assert sizes[-1] < sizes[1] + 200
