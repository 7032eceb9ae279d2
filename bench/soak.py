"""Faults every few seconds, requests all the while: is what the gateway says true?

Simulated workers of all engines run in this process, a real gateway in its own. The
report ends with the bounds that must hold; the exit status is 1 where one does not.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench._soak_faults import calm, choose, speak
from bench._soak_fleet import Fleet, kind
from bench._soak_gateway import WORD
from bench._soak_report import Report, print_report
from bench._soak_traffic import Traffic
from bench._soak_windows import Settled, Window, Windows, wrong_claims, wrong_feeds

LOOK_S = 0.25
CALM_S = 15.0
START_S = 60.0
REPLAY_S = 20.0
"""How long a replay may take that the last batch was the first to ask for."""
PREFILL_RATE = "80000"
"""Of all: else what is new goes to the one that seems fastest, while nobody waits."""


class Soak:
    """One run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._rng = random.Random(arguments.seed)
        self._fleet = Fleet(arguments.workers, cache=arguments.cache)
        self._playing: list[Window] = []
        self._settled: list[Settled] = []
        self._memory: list[tuple[float, int]] = []
        self._page: dict[str, Any] = {"workers": []}
        self._index: dict[str, Any] = {"owners": []}

    async def run(self) -> bool:
        """Run to the end and print the report: whether all bounds hold."""
        await self._fleet.start()
        try:
            words = [*self._fleet.words, "--suspect-ttl", str(self._arguments.ttl)]
            words += ["--prefill-rate", PREFILL_RATE]
            with open(self._arguments.log, "wb") as log:  # noqa: ASYNC230 - once
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "bench._soak_gateway", "serve", "--port", "0",
                    *words, stdout=asyncio.subprocess.PIPE, stderr=log,
                )  # fmt: skip
            try:
                return await self._with_gateway(process)
            finally:
                process.terminate()
                await process.wait()
        finally:
            await self._fleet.stop()

    async def _with_gateway(self, process: asyncio.subprocess.Process) -> bool:
        assert process.stdout is not None
        url = ""
        async with asyncio.timeout(START_S):
            while not url:
                line = (await process.stdout.readline()).decode()
                if not line:
                    raise SystemExit(f"the gateway ended: see {self._arguments.log}")
                word, _, rest = line.partition(" ")
                url = rest.strip() if word == "ready" else ""
        self._windows = Windows(self._fleet.workers)
        # Workers close what rests, perhaps just when it is used.
        control = _client(force_close=True)
        async with control, _client(force_close=False) as client:
            traffic = Traffic(
                client, url, seed=self._arguments.seed, groups=self._arguments.workers
            )
            tasks = [
                asyncio.create_task(self._read(process.stdout)),
                asyncio.create_task(self._look(control, url, process.pid)),
            ]
            begun = time.monotonic()
            await self._exchange(control, traffic)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            wrong = await self._at_the_end(control, url)
        return print_report(
            Report(
                seconds=time.monotonic() - begun,
                traffic=traffic,
                windows=self._windows,
                settled=self._settled,
                memory=self._memory,
                wrong=wrong,
                kinds={worker.url: kind(worker) for worker in self._fleet.workers},
                suspect_ttl_s=self._arguments.ttl,
            )
        )

    async def _exchange(self, client: aiohttp.ClientSession, traffic: Traffic) -> None:
        """Traffic with faults, then a while without."""
        clients = asyncio.create_task(traffic.run(self._arguments.clients))
        end = time.monotonic() + 60 * self._arguments.minutes
        faults: set[asyncio.Task[None]] = set()
        await asyncio.sleep(self._arguments.every)
        while time.monotonic() < end:
            faults.add(asyncio.create_task(self._fault(client)))
            faults = {task for task in faults if not task.done() or task.result()}
            await asyncio.sleep(self._arguments.every)
        await asyncio.gather(*faults)
        # Workers with little to do have not sent all yet that was to be spoilt.
        await asyncio.gather(*(calm(client, each) for each in self._fleet.workers))
        await asyncio.sleep(self._arguments.ttl + CALM_S)
        traffic.stop()
        await clients

    async def _at_the_end(self, client: aiohttp.ClientSession, url: str) -> list[str]:
        """What is said wrongly still when all was said, and heard.

        That a worker's last batch was lost, only its next one can tell: then there is
        a replay and, where that fails, the suspect time, before it is live again.
        """
        await asyncio.gather(*(speak(client, each) for each in self._fleet.workers))
        end = time.monotonic() + REPLAY_S + self._arguments.ttl
        while True:
            self._page = await _get(client, f"{url}/gateway/workers")
            self._index = await _get(client, f"{url}/gateway/index")
            wrong = self._wrong()
            if not wrong or time.monotonic() >= end:
                return wrong
            await asyncio.sleep(LOOK_S)

    async def _fault(self, client: aiohttp.ClientSession) -> None:
        worker = self._rng.choice(
            [each for each in self._fleet.workers if each.options.kv_events]
        )
        name, play = choose(self._rng, worker)
        window = self._windows.open(worker, name)
        self._playing.append(window)
        await play(client, worker)
        self._playing.remove(window)

    async def _read(self, lines: asyncio.StreamReader) -> None:
        """What the gateway tells of finished requests."""
        while line := await lines.readline():
            word, _, rest = line.partition(b" ")
            if word.decode() == WORD:
                self._settled.append(msgspec.json.decode(rest, type=Settled))

    async def _look(self, client: aiohttp.ClientSession, url: str, pid: int) -> None:
        while True:
            self._page = await _get(client, f"{url}/gateway/workers")
            self._windows.look(self._page, self._playing)
            self._memory.append((time.monotonic(), _resident(pid)))
            await asyncio.sleep(LOOK_S)

    def _wrong(self) -> list[str]:
        """Feeds that do not say what is so at the end, and blocks that are not held."""
        workers = {worker.url: worker for worker in self._fleet.workers}
        claimed = [
            f"{owner['worker']} ({kind(workers[owner['worker']])}): {wrong}"
            for owner in self._index["owners"]
            for wrong in wrong_claims(workers[owner["worker"]], owner, self._page)
        ]
        return claimed + [
            f"{told['url']} ({kind(workers[told['url']])}): {wrong}"
            for told in self._page["workers"]
            for wrong in wrong_feeds(workers[told["url"]], told)
        ]


async def _get(client: aiohttp.ClientSession, url: str) -> Any:
    async with client.get(url) as response:
        return await response.json()


def _client(*, force_close: bool) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, force_close=force_close)
    return aiohttp.ClientSession(connector=connector)


def _resident(pid: int) -> int:
    """The bytes of memory a process has (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def run(argv: Sequence[str]) -> None:
    """Soak a gateway; SystemExit(1) where a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--every", type=float, default=4.0,
                        help="seconds between two faults")  # fmt: skip
    parser.add_argument("--ttl", type=float, default=20.0,
                        help="the gateway's --suspect-ttl")  # fmt: skip
    parser.add_argument("--cache", type=float, default=1.0,
                        help="times the usual size of the workers' caches")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", default="soak-gateway.log",
                        help="where the gateway's log goes")  # fmt: skip
    if not uvloop.run(Soak(parser.parse_args(argv)).run()):
        raise SystemExit(1)
