"""Block hashing, index match, event ingest, and bytes per block at a worker."""

import argparse
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence

from kvindex.blocks import Namespace, chain, pack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch
from kvindex.feed import Feed
from kvindex.index import Indexes, PrefixIndex
from kvindex.wire.vllm import decode_batch, encode_batch

TOKENS = 32_768
OWNERS = 16
RUN = 64
ROOT = Namespace(model="bench").root()


def run(argv: Sequence[str]) -> None:
    """Print the costs, each beside a named baseline of the same run."""
    parser = argparse.ArgumentParser(prog="python -m bench index", description=__doc__)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--batches", type=int, default=400)
    options = parser.parse_args(argv)
    rng = random.Random(1)
    _hashing(rng, options.block_size)
    _matching(rng)
    _ingest(rng, options.block_size, options.batches)


def best_us(call: Callable[[], object], repeats: int = 200) -> float:
    """The least CPU time of a call, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times) * 1e6


def _hashing(rng: random.Random, size: int) -> None:
    ids = [rng.randrange(150_000) for _ in range(TOKENS)]
    packed = pack_ids(ids)
    print(f"{TOKENS} tokens, block size {size}")
    print(f"  pack ids                {best_us(lambda: pack_ids(ids)):9.1f} us")
    print(
        f"  chain                   {best_us(lambda: chain(packed, size, 1)):9.1f} us"
    )


def _matching(rng: random.Random) -> None:
    index = PrefixIndex(block_size=16)
    owners = [index.add_owner(i) for i in range(OWNERS)]
    prompts = [[rng.getrandbits(64) for _ in range(2048)] for _ in range(200)]
    for prompt in prompts:
        for owner in rng.sample(owners, 2):
            length = rng.randrange(2048)
            index.store_run(owner, prompt[:length], on_gpu=True)
    warm = prompts[0]
    held = [set(warm[: h.blocks]) for h in index.match(warm, owners)]

    def scan() -> list[int]:
        return [
            next((i for i, h in enumerate(warm) if h not in blocks), len(warm))
            for blocks in held
        ]

    turn = iter(prompts * 2)
    print(f"match of 2,048 blocks over {OWNERS} owners, {index.blocks} blocks held")
    hot = best_us(lambda: index.match(warm, owners))
    print(f"  bisecting, warm         {hot:9.1f} us")
    cold = best_us(lambda: index.match(next(turn), owners))
    print(f"  bisecting, next prompt  {cold:9.1f} us")
    print(f"  baseline: scan of sets  {best_us(scan):9.1f} us")
    for position, owner in enumerate(owners):
        index.store_run(owner, warm[: 100 + 120 * position], on_gpu=True)
    print(f"  {OWNERS} different lengths    ", end="")
    print(f"{best_us(lambda: index.match(warm, owners)):9.1f} us")


def _ingest(rng: random.Random, size: int, batches: int) -> None:
    stored, removed = [], []
    for _ in range(batches):
        names = tuple(rng.getrandbits(64) for _ in range(RUN))
        ids = pack_ids(rng.randrange(150_000) for _ in range(RUN * size))
        store = BlockStored(
            hashes=names, token_ids=ids, block_size=size, medium="GPU", group=0
        )
        stored.append(encode_batch(EventBatch(timestamp=1.0, events=(store,), rank=0)))
        gone = tuple(BlockRemoved(hashes=(n,), medium="GPU", group=0) for n in names)
        removed.append(encode_batch(EventBatch(timestamp=1.0, events=gone, rank=0)))
    feed = Feed(
        model="bench",
        indexes=Indexes(limit_bytes=1 << 34),
        key="worker",
        clock=time.monotonic,
    )
    payloads = iter(enumerate([*stored, *removed]))
    tracemalloc.start()
    for _ in range(batches // 2):
        feed.receive(*next(payloads))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert feed.owner is not None
    per_block = used / feed.owner.blocks
    left = batches - batches // 2
    decode = best_us(lambda: decode_batch(stored[0])) / RUN
    store_us = best_us(lambda: feed.receive(*next(payloads)), left) / RUN
    remove_us = best_us(lambda: feed.receive(*next(payloads)), batches) / RUN
    print(f"events, {RUN} blocks a batch, us per block")
    print(f"  stored                  {store_us:9.2f}")
    print(f"    of it decode          {decode:9.2f}")
    print(f"  removed, one an event   {remove_us:9.2f}")
    print(f"  memory                  {per_block:9.0f} bytes per (worker, block)")
    print(f"  left at the worker      {feed.owner.blocks:9d} blocks")
