"""Five of eight workers fail, each in its way: what is lost, and is it told clearly?

One is killed, one hangs, one resets every connection, one answers 503 with Retry-After,
one closes in the middle of streams; three go on. Real sockets, and a process for each
that is killed or hangs. The exit status is 1 where a bound is broken.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import uvloop

from bench._chaos_report import Report, print_report
from bench._chaos_traffic import MODEL, Traffic
from bench._processes import percentile, resident_mb, waited_s
from simworker.model import demo_model_dir

FAULTS = (("killed",), ("hung",), ("reset", "busy", "close"), ("", "", ""))
"""By process: of each of its workers."""
WORKER = {"served_model_name": [MODEL], "blocks": 4096}
CALM_S = 10.0
START_S = 180.0
TIMEOUT_S = "20"
"""Of first bytes and of silence: so that what hangs ends within the run."""


class Peer:
    """One process, and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.urls: list[str] = []
        self.took: list[str] = []
        self.late: list[str] = []
        self.ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, *words: str, log: str | None = None) -> "Peer":
        """`python -m WORDS`, once it is ready."""
        with contextlib.ExitStack() as stack:
            target = None
            if log is not None:
                target = stack.enter_context(open(log, "wb"))  # noqa: ASYNC230 - once
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *words,
                stdout=asyncio.subprocess.PIPE, stderr=target,
            )  # fmt: skip
        peer = cls(process)
        async with asyncio.timeout(START_S):
            await peer.ready.wait()
        return peer

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            words = line.decode().split()
            if words[:1] == ["ready"]:
                self.urls = words[1:]
                self.ready.set()
            elif len(words) == 2:  # else it ended in the middle of a line
                told = self.took if words[0] == "took" else self.late
                told.append(words[1])

    async def stop(self) -> None:
        """End it, whatever state it is in."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading


class Chaos:
    """One run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._workers: list[Peer] = []
        self._inflight: dict[str, int] = {}
        self._files: list[int] = []
        self._memory: list[float] = []
        self._waited: list[float] = []

    async def run(self) -> bool:
        """Run to the end and print the report: whether all bounds hold."""
        async with contextlib.AsyncExitStack() as stack:
            starts = [
                Peer.start("bench._chaos_worker", str(len(faults)), json.dumps(WORKER))
                for faults in FAULTS
            ]
            for peer in await asyncio.gather(*starts):
                stack.push_async_callback(peer.stop)
                self._workers.append(peer)
            urls = ",".join(url for peer in self._workers for url in peer.urls)
            gateway = await Peer.start(
                "gateway", "--workers", urls, "--model", str(demo_model_dir()),
                "--host", "127.0.0.1", "--port", "0", "--first-byte-timeout", TIMEOUT_S,
                "--idle-timeout", TIMEOUT_S, log=self._arguments.log,
            )  # fmt: skip
            stack.push_async_callback(gateway.stop)
            self._idle = await Peer.start("bench._idle")
            stack.push_async_callback(self._idle.stop)
            return await self._with(gateway)

    async def _with(self, gateway: Peer) -> bool:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as client:
            looking = asyncio.create_task(self._look(gateway.process.pid))
            (url,) = gateway.urls
            traffic = Traffic(client, url, self._arguments.seed)
            before = await _metrics(client, url)
            self._idle.late.clear()
            failing = asyncio.create_task(self._fail(client, url))
            seconds = 60 * self._arguments.minutes + CALM_S
            await traffic.run(self._arguments.rate, seconds)
            await failing
            looking.cancel()
            after = await _metrics(client, url)
        return print_report(
            Report(
                outcomes=traffic.outcomes,
                faults={url: fault for _, url, fault in self._each()},
                inflight=self._inflight,
                metrics={n: v - before.get(n, 0.0) for n, v in after.items()},
                took=[name for peer in self._workers for name in peer.took],
                files=self._files,
                memory_mb=self._memory,
                waited_share=(self._waited[-1] - self._waited[0]) / len(self._waited),
                idle_lag_s=percentile([float(n) for n in self._idle.late], 0.99),
            )
        )  # fmt: skip

    async def _fail(self, client: aiohttp.ClientSession, gateway: str) -> None:
        """After a while without, every fault at once, for good."""
        await asyncio.sleep(CALM_S)
        for peer, url, fault in self._each():
            self._inflight[url] = await _inflight(client, gateway, url)
            if fault == "killed":
                peer.process.kill()
            elif fault == "hung":
                peer.process.send_signal(signal.SIGSTOP)
            elif fault:
                chaos = {"fault": fault}
                async with client.post(f"{url}/chaos", json=chaos) as response:
                    response.raise_for_status()

    def _each(self) -> Iterator[tuple[Peer, str, str]]:
        """Each worker's process, URL and fault."""
        for peer, faults in zip(self._workers, FAULTS, strict=True):
            for url, fault in zip(peer.urls, faults, strict=True):
                yield peer, url, fault

    async def _look(self, pid: int) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._files.append(len(os.listdir(f"/proc/{pid}/fd")))
            self._memory.append(resident_mb(pid))
            self._waited.append(waited_s(pid))


async def _inflight(client: aiohttp.ClientSession, gateway: str, url: str) -> int:
    async with client.get(f"{gateway}/gateway/workers") as response:
        page: dict[str, Any] = await response.json()
    of_worker = (one for one in page["workers"] if one["url"] == url)
    return int(next(of_worker)["inflight_requests"])


async def _metrics(client: aiohttp.ClientSession, url: str) -> dict[str, float]:
    async with client.get(f"{url}/metrics") as response:
        page = await response.text()
    lines = [line for line in page.splitlines() if line and not line.startswith("#")]
    return {name: float(v) for name, v in (line.rsplit(" ", 1) for line in lines)}


def run(argv: Sequence[str]) -> None:
    """Run it; SystemExit(1) where a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", default="chaos-gateway.log",
                        help="where the gateway's log goes")  # fmt: skip
    begun = time.monotonic()
    holds = uvloop.run(Chaos(parser.parse_args(argv)).run())
    print(f"took {time.monotonic() - begun:.0f} s")
    if not holds:
        raise SystemExit(1)
