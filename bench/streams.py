"""Many slow event streams at a time: delay added to each event, CPU per event, memory.

2,000 streams of 4 tokens a second, and 300 of 20: straight to the worker, through a
proxy that only moves bytes, and through the gateway. Worker and client speak the bare
protocol, so that what is measured is the gateway; all share the machine.
"""

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import time
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench._processes import cpu_s, percentile, resident_mb, running
from bench._raw_client import request
from gateway.serve import allow_many_connections
from simworker.model import demo_model_dir

CELLS = "2000x4,300x20"
PATH = "/v1/chat/completions"
SENT = re.compile(rb'"sent":([0-9.]+)')
OPENED_AT_ONCE = 50
SETTLE_S = 3.0
OPEN_S = 120.0


class Streams:
    """What all streams have brought, once somebody `measures`."""

    def __init__(self) -> None:
        self.measures = False
        self.open = 0
        self.lost = 0
        self.delays: list[float] = []

    def take(self, data: bytes) -> None:
        """What one read brought."""
        if self.measures:
            now = time.monotonic()
            self.delays += [now - float(sent) for sent in SENT.findall(data)]


class _Client(asyncio.Protocol):
    """One stream."""

    def __init__(self, streams: Streams, message: bytes) -> None:
        self._streams = streams
        self._message = message
        self._began = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._message)

    def data_received(self, data: bytes) -> None:
        if not self._began and b'"sent":' in data:
            self._began = True
            self._streams.open += 1
        self._streams.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.lost += self._streams.measures


class Measured(msgspec.Struct, kw_only=True):
    """One cell: seconds of delay per event, and what the process used."""

    delays: Sequence[float]
    lost: int
    cpu_s: float
    memory_mb: float


async def measure(
    url: str, pid: int, count: int, rate: float, seconds: float
) -> Measured:
    """`count` streams of `rate` events a second, for so long."""
    streams, parts = Streams(), urlsplit(url)
    chat = {"model": "m", "stream": True, "user": f"{1 / rate:g}",
            "messages": [{"role": "user", "content": "go on"}]}  # fmt: skip
    body = json.dumps(chat, separators=(",", ":")).encode()
    loop, message = asyncio.get_running_loop(), request(url, PATH, body)
    transports = []
    for number in range(count):
        transport, _ = await loop.create_connection(
            lambda: _Client(streams, message), parts.hostname or "", parts.port or 80
        )
        transports.append(transport)
        if number % OPENED_AT_ONCE == 0:
            await asyncio.sleep(0.02)
    async with asyncio.timeout(OPEN_S):
        while streams.open < count:  # noqa: ASYNC110 - a count, not an event
            await asyncio.sleep(0.1)
    await asyncio.sleep(SETTLE_S)
    before, streams.measures = cpu_s(pid), True
    await asyncio.sleep(seconds)
    streams.measures = False
    used, memory = cpu_s(pid) - before, resident_mb(pid)
    for transport in transports:
        transport.abort()
    await asyncio.sleep(1.0)
    return Measured(
        delays=streams.delays, lost=streams.lost, cpu_s=used, memory_mb=memory
    )


def cells(text: str) -> list[tuple[int, float]]:
    """Streams and events a second of each, as `2000x4,300x20` says them."""
    pairs = (cell.split("x") for cell in text.split(","))
    return [(int(count), float(rate)) for count, rate in pairs]


def run(argv: Sequence[str]) -> None:
    """Measure both cells and print them."""
    parser = argparse.ArgumentParser(prog="python -m bench streams",
                                     description=__doc__)  # fmt: skip
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", default=CELLS, metavar="STREAMSxRATE[,...]",
                        help=f"events a second of each (default: {CELLS})")  # fmt: skip
    arguments = parser.parse_args(argv)
    allow_many_connections()
    with contextlib.ExitStack() as stack:
        worker_pid, worker = stack.enter_context(running("bench._stream_worker"))
        pid, gateway = stack.enter_context(
            running(
                "gateway", "--workers", worker, "--model", str(demo_model_dir()),
                "--host", "127.0.0.1", "--port", "0", "--log-level", "warning",
                "--drain-delay", "0", "--drain-timeout", "1",
            )
        )  # fmt: skip
        print(f"the gateway alone: {resident_mb(pid):.0f} MB")
        ways = {
            "direct": (worker_pid, worker),
            "bytes": stack.enter_context(running("bench._byte_proxy", worker)),
            "gateway": (pid, gateway),
        }
        for count, rate in cells(arguments.cells):
            print(f"{count} streams of {rate:g} events a second")
            rounds: dict[str, list[Measured]] = {name: [] for name in ways}
            for _ in range(arguments.rounds):
                for name, (process, url) in ways.items():
                    measuring = measure(url, process, count, rate, arguments.seconds)
                    rounds[name].append(uvloop.run(measuring))
            _print(rounds)


def _print(rounds: dict[str, list[Measured]]) -> None:
    """Medians of the rounds; what is added is against the worker itself."""
    for name, runs in rounds.items():
        if name == "direct":
            continue
        p50, p99 = (
            statistics.median(
                1000 * (percentile(one.delays, share) - percentile(near.delays, share))
                for one, near in zip(runs, rounds["direct"], strict=True)
            )
            for share in (0.5, 0.99)
        )
        cost = statistics.median(map(_cpu_us, runs))
        ratio = cost / statistics.median(map(_cpu_us, rounds["bytes"]))
        print(
            f"  {name:8} {cost:5.1f} us of CPU per event, {ratio:4.2f} x bytes; added "
            f"p50 {p50:.2f} ms, p99 {p99:.2f} ms; {runs[-1].memory_mb:.0f} MB; "
            f"{sum(run.lost for run in runs)} streams lost"
        )


def _cpu_us(measured: Measured) -> float:
    return 1e6 * measured.cpu_s / len(measured.delays)
