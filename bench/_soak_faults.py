"""What the soak does to its workers, by their `/sim` routes."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from simworker.model import NAME
from simworker.server import SimWorker

Play = Callable[[aiohttp.ClientSession, SimWorker], Awaitable[None]]
LASTING_S = 2.0
LAST_WORDS = "This is the last that is asked of you today"
LAST_WORDS_TIMES = 12
"""More than two blocks of any worker."""


async def _post(
    client: aiohttp.ClientSession, worker: SimWorker, path: str, body: object
) -> Any:
    async with client.post(f"{worker.url}{path}", json=body) as response:
        answer = await response.json()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer}")
        return answer


def _faults(lasting_s: float = 0.0, **fields: object) -> Play:
    """Play these; those of a lasting kind only for so long."""

    async def play(client: aiohttp.ClientSession, worker: SimWorker) -> None:
        await _post(client, worker, "/sim/faults", fields)
        if lasting_s:
            await asyncio.sleep(lasting_s)
            await _post(client, worker, "/sim/faults", {})

    return play


def _restart(**fields: object) -> Play:
    async def play(client: aiohttp.ClientSession, worker: SimWorker) -> None:
        await _post(client, worker, "/sim/restart", fields)

    return play


async def _resize(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Twice the block size, or the one it had."""
    asked = worker.options.tokens_per_block
    size = asked if worker.ranks.block_size != asked else 2 * asked
    await _post(client, worker, "/sim/restart", {"block_size": size})


async def _reset(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Refused while requests run, so it is tried until it is not."""
    for _ in range(100):
        if (await _post(client, worker, "/sim/reset?flush=1", {}))["success"]:
            return
        await asyncio.sleep(0.02)


async def _steal(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Another consumer of the drain."""
    for _ in range(20):
        await _post(client, worker, "/kv_cache_events", {})
        await asyncio.sleep(LASTING_S / 20)


OF_ALL: Mapping[str, Play] = {
    "drop": _faults(drop=3),
    "mute": _faults(LASTING_S, mute=True),
    "duplicate": _faults(duplicate=3),
    "reorder": _faults(reorder=3),
    "delay": _faults(LASTING_S, delay_s=0.5),
    "malformed": _faults(spoil="malformed", spoil_count=2),
    "truncated": _faults(spoil="truncated", spoil_count=2),
    "wrong type": _faults(spoil="wrong_type", spoil_count=2),
    "future fields": _faults(spoil="future_fields", spoil_count=5),
    "wrong parents": _faults(wrong_parents=2),
    "unknown removals": _faults(unknown_removals=2),
    "restart": _restart(),
    "restart, unheard": _restart(unheard=True),
    "restart, same start time": _restart(same_start=True),
    "block size": _resize,
    "reset": _reset,
}
OF_SOCKETS: Mapping[str, Play] = {
    "oversized": _faults(spoil="oversized"),
    "restart, reconnect": _restart(reconnect=True),
}
OF_REPLAY: Mapping[str, Play] = {
    f"drop, replay {how}": _faults(LASTING_S, drop=3, replay=how, pause_s=0.2)
    for how in ("slow", "hang", "cut", "refuse")
}
OF_DRAIN: Mapping[str, Play] = {
    "drain hangs": _faults(LASTING_S, drain="hang"),
    "drain fails": _faults(LASTING_S, drain="error"),
    "drain is garbage": _faults(LASTING_S, drain="garbage"),
    "second consumer": _steal,
}


def choose(rng: random.Random, worker: SimWorker) -> tuple[str, Play]:
    """A fault that this worker can play, with its name."""
    known = dict(OF_ALL)
    if worker.ranks.publishers:
        known |= OF_SOCKETS
    if worker.replay_endpoint:
        known |= OF_REPLAY
    if worker.options.engine == "trtllm":
        known |= OF_DRAIN
    return rng.choice(list(known.items()))


async def calm(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Nothing is wrong with what it sends from now on."""
    await _post(client, worker, "/sim/faults", {})


async def speak(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Each rank is asked what it has not cached, and publishes what it stores."""
    for rank in range(len(worker.ranks)):
        text = f"{rank} {LAST_WORDS} {worker.url} " * LAST_WORDS_TIMES
        messages = [{"role": "user", "content": text}]
        body = {"model": NAME, "messages": messages, "max_tokens": 4}
        headers = {"X-data-parallel-rank": str(rank)} if len(worker.ranks) > 1 else {}
        path = f"{worker.url}/v1/chat/completions"
        async with client.post(path, json=body, headers=headers) as response:
            if response.status != 200:
                raise RuntimeError(f"{path}: {response.status}")


def at_rest(worker: SimWorker) -> bool:
    """Whether no fault is left to be played."""
    return all(rank.stream.line.at_rest for rank in worker.ranks if rank.stream)
