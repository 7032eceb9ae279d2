"""One cell of the index benchmark: one side, in a process of its own.

`python -m bench._index_cell CELL SIDE SEED WORKERS ENTRIES` prints a line of JSON.
"""

import gc
import hashlib
import json
import random
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bench._index_sides import MAKERS, Side
from bench._index_work import Removed, Stored, Work, chains

TOKENS = 32_768
HASH_ROUNDS = 200
QUERIES = 500
WARM_UP = 20
AT_ONCE = 100
ROUNDS = 10
CHAIN = 64
PAGE_BYTES = 4_096


def resident_bytes() -> int:
    """Memory of this process as the system counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def timed_us(call: Callable[[], object]) -> float:
    """Wall time of one call in microseconds."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e3


def hash_cell(side: Side, seed: int) -> dict[str, Any]:
    """Median time to hash a prompt, by block size."""
    rng = random.Random(f"tokens/{seed}")
    ids = [rng.randrange(150_000) for _ in range(TOKENS)]
    result: dict[str, Any] = {"packed": {}}
    packed = array("I", ids).tobytes()
    for size in (16, 64):
        assert len(side.hashes(ids, size)) == TOKENS // size
        result[str(size)] = _median_us(side.hashes, ids, size)
        if side.chains:
            result["packed"][str(size)] = _median_us(side.chain, packed, size)
    return result


def _median_us(call: Callable[..., object], *arguments: object) -> float:
    times = [timed_us(partial(call, *arguments)) for _ in range(HASH_ROUNDS)]
    return statistics.median(times)


def tree_cell(side: Side, seed: int, workers: int, entries: int) -> dict[str, Any]:
    """Rates of storing and removing, bytes an entry, median times of queries."""
    work = Work(seed, workers, entries)
    side.flush()
    gc.collect()
    gc.freeze()
    before = resident_bytes()
    result: dict[str, Any] = {"store": work.entries / _apply(side, work.stored())}
    gc.collect()
    result["bytes"] = (resident_bytes() - before) / work.entries
    answers = hashlib.sha256()
    for kind, prompts in work.queries(QUERIES).items():
        result[kind] = _match(side, [side.prompt(p) for p in prompts], answers)
    result["answers"] = answers.hexdigest()[:12]
    removed = list(work.removed(min(100_000, entries // 4)))
    blocks = sum(len(event.names) for event in removed)
    result["remove"] = blocks / _apply(side, removed)
    return result


def _apply(side: Side, events: Iterable[Stored | Removed]) -> float:
    """CPU seconds, all threads, to take events in, some prepared at a time."""
    left, seconds = iter(events), 0.0
    while some := list(islice(left, AT_ONCE)):
        prepared = [
            side.stored(event) if isinstance(event, Stored) else side.removed(event)
            for event in some
        ]
        start = time.process_time()
        for event in prepared:
            side.apply(event)
        side.flush()
        seconds += time.process_time() - start
    return seconds


def _match(side: Side, prompts: list[Any], answers: Any) -> dict[str, float]:
    """A query is made right before it is asked, as in a router."""
    for prompt in prompts[:WARM_UP]:
        side.match(side.chain(prompt))
    times = []
    for prompt in prompts:
        query = side.chain(prompt)
        start = time.perf_counter_ns()
        answer = side.match(query)
        times.append((time.perf_counter_ns() - start) / 1e3)
        answers.update(json.dumps(sorted(side.held(answer).items())).encode())
    result = {
        "p50": statistics.median(times),
        "p99": sorted(times)[len(times) * 99 // 100],
    }
    if side.chains:
        chained = [timed_us(partial(side.chain, prompt)) for prompt in prompts[:100]]
        result["chain"] = statistics.median(chained)
    return result


def churn_cell(side: Side, seed: int, blocks: int) -> dict[str, Any]:
    """Resident memory in MB after each round of storing and removing `blocks`."""
    rng = random.Random(f"churn/{seed}")
    sizes = []
    for _ in range(ROUNDS):
        stored: list[Stored] = []
        _apply(side, _seen(chains(rng, blocks, CHAIN), stored))
        removed = (
            Removed(event.worker, [name for name, _ in reversed(event.blocks)])
            for event in reversed(stored)
        )
        _apply(side, removed)
        del removed, stored
        gc.collect()
        sizes.append(resident_bytes() / 1e6)
    return {"sizes": sizes}


def _seen(events: Iterable[Stored], into: list[Stored]) -> Iterable[Stored]:
    for event in events:
        into.append(event)
        yield event


def main(cell: str, name: str, seed: int, workers: int, entries: int) -> None:
    """Measure and print."""
    side = MAKERS[name](max(workers, 1))
    if cell == "hash":
        result = hash_cell(side, seed)
    elif cell == "tree":
        result = tree_cell(side, seed, workers, entries)
    else:
        result = churn_cell(side, seed, entries)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
