"""How long requests wait while events pour in: the gateway's own sockets and slices.

Publishers are another process: it binds one socket for each worker and sends batches at
a steady rate, stores and removals in turn. Here the gateway's subscriptions fill one
index on one event loop, on which matches are timed, and how late a timer fires.
"""

import asyncio
import random
import subprocess
import sys
import time

import msgspec
import uvloop
import zmq

from bench._processes import percentile
from gateway.events.feeds import EventSockets
from gateway.events.slices import Slices
from gateway.housekeeping import sweep
from gateway.workers.engines.facts import EventSource
from kvindex.blocks import Namespace, chain, pack_ids
from kvindex.events import BlockRemoved, BlockStored, EventBatch, KVEvent
from kvindex.feed import Feed
from kvindex.index import Indexes
from kvindex.wire.vllm import encode_batch, encode_frames

WORKERS = 8
SIZE = 16
RUN = 64
"""Blocks of a batch."""
BATCHES = 400
"""Different batches of each publisher; sent again and again."""
PERIOD_S = 0.001
PROMPT_BLOCKS = 2_048
SETTLE_S = 1.0


class Lag(msgspec.Struct, kw_only=True):
    """What was measured, in seconds; `waits` is how late timers fired."""

    matches: list[float] = msgspec.field(default_factory=list)
    waits: list[float] = msgspec.field(default_factory=list)
    cpu: list[float] = msgspec.field(default_factory=list)
    blocks: int = 0
    seconds: float = 0.0
    states: set[str] = msgspec.field(default_factory=set)


def measure(rate: int, seconds: float) -> Lag:
    """With so many blocks a second, stored and removed, over all workers."""
    publisher = subprocess.Popen(
        [sys.executable, "-m", "bench._index_lag", str(rate)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert publisher.stdout is not None
        endpoints = publisher.stdout.readline().split()
        return uvloop.run(_measure(endpoints, seconds))
    finally:
        publisher.terminate()
        publisher.wait(10)


async def _measure(endpoints: list[str], seconds: float) -> Lag:
    indexes, sockets, lag = Indexes(limit_bytes=1 << 32), EventSockets(Slices()), Lag()
    feeds = [
        Feed(model="bench", indexes=indexes, key=place, clock=time.monotonic)
        for place in endpoints
    ]
    followers = []
    for feed, place in zip(feeds, endpoints, strict=True):
        feed.sliced = True
        source = EventSource(endpoint=place)
        follower = sockets.follow(feed, source, lambda: None)
        followers.append(asyncio.create_task(follower))
    followers.append(asyncio.create_task(_keep_house(feeds, indexes)))
    await asyncio.sleep(SETTLE_S)
    watcher = asyncio.create_task(_watch(lag))
    before, start = _blocks(feeds), time.monotonic()
    await _match(feeds, indexes, seconds, lag)
    lag.seconds = time.monotonic() - start
    lag.blocks = _blocks(feeds) - before
    lag.states = {feed.state.value for feed in feeds}
    for task in (watcher, *followers):
        task.cancel()
    await asyncio.gather(watcher, *followers, return_exceptions=True)
    sockets.close()
    return lag


def _blocks(feeds: list[Feed]) -> int:
    return sum(feed.counters.stored + feed.counters.removed for feed in feeds)


async def _keep_house(feeds: list[Feed], indexes: Indexes) -> None:
    while True:
        for feed in feeds:
            feed.tick()
        while sweep(indexes):  # noqa: ASYNC110 - work in slices
            await asyncio.sleep(0)
        await asyncio.sleep(1)


async def _match(feeds: list[Feed], indexes: Indexes, seconds: float, lag: Lag) -> None:
    """About 200 prompts a second, of which each worker holds one run at times."""
    index = indexes.get("bench", SIZE)
    prompts = [_hashes(number % WORKERS, number) for number in range(100)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for prompt in prompts:
            owners = [feed.owner for feed in feeds if feed.owner is not None]
            start = time.perf_counter()
            index.match(prompt, owners)
            lag.matches.append(time.perf_counter() - start)
            await asyncio.sleep(0.005)


async def _watch(lag: Lag) -> None:
    while True:
        due, cpu = time.monotonic() + PERIOD_S, time.thread_time()
        await asyncio.sleep(PERIOD_S)
        lag.waits.append(max(0.0, time.monotonic() - due))
        lag.cpu.append(time.thread_time() - cpu)


def _tokens(worker: int, batch: int, blocks: int) -> bytes:
    rng = random.Random(f"{worker}/{batch}")
    return pack_ids(rng.randrange(1 << 17) for _ in range(blocks * SIZE))


def _hashes(worker: int, batch: int) -> list[int]:
    tokens = _tokens(worker, batch, RUN) + bytes(4 * SIZE * (PROMPT_BLOCKS - RUN))
    return chain(tokens, SIZE, Namespace(model="bench").root())


def report(lag: Lag) -> str:
    """The lines of it."""
    parts = [
        f"{name} p50 {1e3 * percentile(values, 0.5):.3f} p99 "
        f"{1e3 * percentile(values, 0.99):.3f} worst {1e3 * max(values):.3f} ms"
        for name, values in (
            ("match of 2,048 blocks    ", lag.matches),
            ("lateness of a 1 ms timer ", lag.waits),
            ("CPU time between two     ", lag.cpu),
        )
    ]
    rate, states = lag.blocks / lag.seconds, "/".join(sorted(lag.states))
    head = f"{rate:.0f} blocks/s from {WORKERS} workers, feeds {states}"
    return "\n    ".join([head, *parts])


def publish(rate: int) -> None:
    """Say where, then send so many blocks a second until killed."""
    context = zmq.Context()
    sockets = []
    for _ in range(WORKERS):
        socket = context.socket(zmq.PUB)
        socket.set(zmq.SNDHWM, 100_000)
        socket.bind("tcp://127.0.0.1:*")
        sockets.append(socket)
    batches = [_batches(worker) for worker in range(WORKERS)]
    print(*(s.getsockopt_string(zmq.LAST_ENDPOINT) for s in sockets), flush=True)
    start, sent = time.monotonic(), 0
    while True:
        while sent * RUN < rate * (time.monotonic() - start):
            turn, worker = divmod(sent, WORKERS)
            payload = batches[worker][turn % len(batches[worker])]
            sockets[worker].send_multipart(encode_frames(b"kv", turn, payload))
            sent += 1
        time.sleep(PERIOD_S)


def _batches(worker: int) -> list[bytes]:
    """Stores, each with the removal of an earlier one; a round leaves nothing."""
    names = [
        tuple(
            random.Random(f"{worker}/{batch}/names").getrandbits(64) + at
            for at in range(RUN)
        )
        for batch in range(BATCHES)
    ]
    stores = [
        BlockStored(
            hashes=names[batch],
            token_ids=_tokens(worker, batch, RUN),
            block_size=SIZE,
            medium="GPU",
        )
        for batch in range(BATCHES)
    ]
    removals = [BlockRemoved(hashes=run, medium="GPU") for run in names]
    events: list[KVEvent] = [*stores, *removals]
    return [
        encode_batch(EventBatch(timestamp=0.0, events=(event,), rank=0))
        for event in events
    ]


if __name__ == "__main__":
    publish(int(sys.argv[1]))
