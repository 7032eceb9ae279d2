"""Requests per second of `--processes N` and of one process, on the same workload."""

import argparse
import asyncio
import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench._machine import machine
from bench._processes import cpu_s, free_port, running
from bench._raw_client import load, request
from bench.proxy import PATH, chat
from simworker.model import demo_model_dir

CONNECTIONS = 64
SIZES_KB = (1, 16)


def run(argv: Sequence[str]) -> None:
    """Print requests per second, CPU per request, and the ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench processes",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    print(machine())
    print("client, worker and gateway share these processors: what processes can bring "
          "is bounded by what the others leave")  # fmt: skip
    with contextlib.ExitStack() as stack:
        _, worker = stack.enter_context(running("bench._raw_worker"))
        targets = {
            count: stack.enter_context(running(*_command(worker, count)))
            for count in (1, options.processes)
        }
        for size in SIZES_KB:
            body = chat(1024 * size, stream=False, seed=1)
            _compare(
                f"{size} KB, JSON", targets, body, options.requests, options.rounds
            )


def _command(worker: str, count: int) -> tuple[str, ...]:
    return ("gateway", "serve", "--workers", worker, "--model", str(demo_model_dir()),
            "--host", "127.0.0.1", "--port", "0", "--processes", str(count),
            "--admin-port", str(free_port()), "--log-level", "warning")  # fmt: skip


def _compare(
    kind: str,
    targets: dict[int, tuple[int, str]],
    body: bytes,
    requests: int,
    rounds: int,
) -> None:
    """Interleaved rounds; the medians."""
    rates: dict[int, list[float]] = {count: [] for count in targets}
    costs: dict[int, list[float]] = {count: [] for count in targets}
    for number in range(rounds + 1):
        for count, (pid, url) in targets.items():
            message = request(url, PATH, body)
            before = _cpu_of_all(pid)
            took = asyncio.run(load(url, message, CONNECTIONS, requests))
            if number:  # the first one warms up
                rates[count].append(requests / took)
                costs[count].append(1e6 * (_cpu_of_all(pid) - before) / requests)
    base = statistics.median(rates[min(targets)])
    for count in targets:
        rate, cost = (statistics.median(of[count]) for of in (rates, costs))
        told = f"{rate:6.0f} requests/s  {cost:5.0f} us of CPU each"
        print(f"  {kind:14} --processes {count}  {told}  {rate / base:5.2f}")


def _cpu_of_all(pid: int) -> float:
    """Of a process and of those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_s(one) for one in (pid, *map(int, children)))
