"""CPU per request of the gateway process, and the time to first token it adds."""

import argparse
import asyncio
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
CONFIGURATIONS = {
    "round_robin --render never": ("--policy", "round_robin", "--render", "never"),
    "kv_cache_aware": ("--policy", "kv_cache_aware"),
}


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
    model = str(demo_model_dir())
    print(
        f"CPU microseconds of the gateway process per request, {CONNECTIONS} clients;"
    )
    print(f"median of {arguments.rounds} rounds of {arguments.requests} requests\n")
    with running("bench._raw_worker") as (_, worker):
        for name, words in CONFIGURATIONS.items():
            serve = ("gateway", "serve", "--workers", worker, "--model", model,
                     "--host", "127.0.0.1", "--port", "0", *words)  # fmt: skip
            with running(*serve) as (pid, url):
                _print_cpu(name, pid, url, arguments.requests, arguments.rounds)
                _print_ttft(name, worker, url)


def _print_cpu(name: str, pid: int, url: str, requests: int, rounds: int) -> None:
    for size in (1024, 65536):
        for stream in (False, True):
            body = chat(size, stream=stream, seed=1)
            number = requests // (4 if stream else 1) // (4 if size > 1024 else 1)
            costs = [cpu_per_request(pid, url, body, number) for _ in range(rounds)]
            kind = "32 events" if stream else "JSON"
            cost = statistics.median(costs)
            print(f"  {name:28} {size // 1024:3} KB {kind:10} {cost:7.0f} us", end="")
            print(f"   ({min(costs):.0f} to {max(costs):.0f})")


def _print_ttft(name: str, worker: str, url: str) -> None:
    size = 8_000 * 5  # about five bytes a token in this text
    direct, through = asyncio.run(_first_bytes(worker, url, 150, size))
    added = [
        1000 * (percentile(through, share) - percentile(direct, share))
        for share in (0.5, 0.99)
    ]
    print(
        f"  {name:28} adds to TTFT at 8k-token prompts: "
        f"p50 {added[0]:.2f} ms, p99 {added[1]:.2f} ms\n"
    )
