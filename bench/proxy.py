"""CPU per request of the gateway process, and the time to first token it adds."""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
from collections.abc import Sequence

from bench._processes import cpu_s, percentile, running
from bench._raw_client import Connection, load, request
from simworker.model import demo_model_dir

PATH = "/v1/chat/completions"
CONNECTIONS = 16
WORDS = (
    "the",
    "index",
    "keeps",
    "every",
    "block",
    "a",
    "worker",
    "says",
    "it",
    "holds",
)
BASELINE = "plain aiohttp proxy"
CONFIGURATIONS = {
    "round_robin --render never": ("--policy", "round_robin", "--render", "never"),
    "kv_cache_aware": ("--policy", "kv_cache_aware"),
}
Target = tuple[int, str]
"""A process to measure: its pid and its URL."""


def chat(size: int, *, stream: bool, seed: int) -> bytes:
    """A chat body of about `size` bytes; another seed, another text."""
    rng = random.Random(seed)
    text = f"request {seed}: "
    while len(text) < size - 120:
        text += rng.choice(WORDS) + " "
    head = {"model": "m", "stream": stream}
    messages = [{"role": "user", "content": text[: max(1, size - 120)]}]
    return json.dumps(head | {"messages": messages}, separators=(",", ":")).encode()


def cpu_per_request(pid: int, url: str, body: bytes, requests: int) -> float:
    """Microseconds of the process's CPU time for each of `requests`."""
    message = request(url, PATH, body)
    asyncio.run(load(url, message, CONNECTIONS, CONNECTIONS * 4))
    before = cpu_s(pid)
    asyncio.run(load(url, message, CONNECTIONS, requests))
    return 1e6 * (cpu_s(pid) - before) / requests


async def _first_bytes(
    direct: str, through: str, rounds: int, size: int
) -> tuple[list[float], list[float]]:
    """Seconds to the first event, direct and through the gateway, in turns."""
    near, far = await Connection.open(direct), await Connection.open(through)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        body = chat(size, stream=True, seed=1000 + number)
        for connection, url, own in (
            (near, direct, times[0]),
            (far, through, times[1]),
        ):
            own.append((await connection.exchange(request(url, PATH, body)))[1])
    await near.close()
    await far.close()
    return times


def run(argv: Sequence[str]) -> None:
    """Print a table of CPU per request, and TTFT at 8k-token prompts."""
    parser = argparse.ArgumentParser(prog="python -m bench proxy", description=__doc__)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        _, worker = stack.enter_context(running("bench._raw_worker"))
        plain = stack.enter_context(running("bench._plain_proxy", worker))
        targets = {BASELINE: plain}
        for name, words in CONFIGURATIONS.items():
            serve = ("gateway", "serve", "--workers", worker, "--model",
                     str(demo_model_dir()), "--host", "127.0.0.1", "--port", "0",
                     "--log-level", "warning", *words)  # fmt: skip
            targets[name] = stack.enter_context(running(*serve))
        _print_cpu(targets, arguments.requests, arguments.rounds)
        _print_ttft(targets, worker)


def _print_cpu(targets: dict[str, Target], requests: int, rounds: int) -> None:
    print(f"CPU microseconds of the process per request, {CONNECTIONS} clients; median")
    print(f"of {rounds} interleaved rounds, and the ratio to the {BASELINE}")
    for size, stream in ((1, False), (1, True), (64, False), (64, True)):
        kind = f"{size} KB, " + ("32 events" if stream else "JSON")
        body = chat(1024 * size, stream=stream, seed=1)
        number = max(100, requests // (4 if stream else 1) // (4 if size > 1 else 1))
        costs: dict[str, list[float]] = {name: [] for name in targets}
        for _ in range(rounds):
            for name, (pid, url) in targets.items():
                costs[name].append(cpu_per_request(pid, url, body, number))
        base = statistics.median(costs[BASELINE])
        for name, own in costs.items():
            cost = statistics.median(own)
            print(f"  {kind:16} {name:28} {cost:6.0f} us  {cost / base:5.2f}")


def _print_ttft(targets: dict[str, Target], worker: str) -> None:
    print("added to the time to first event at 8k-token prompts, one at a time")
    size = 8_000 * 5  # about five bytes a token in this text
    for name, (_, url) in targets.items():
        direct, through = asyncio.run(_first_bytes(worker, url, 150, size))
        p50, p99 = (
            1000 * (percentile(through, share) - percentile(direct, share))
            for share in (0.5, 0.99)
        )
        print(f"  {name:28} p50 {p50:5.2f} ms  p99 {p99:5.2f} ms")
