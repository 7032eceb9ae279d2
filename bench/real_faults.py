"""Two real workers behind a running gateway: one is reset, one restarted in mid-run.

Chats go on turn by turn through both. After each part of the run: hit tokens predicted
and delivered, and the state of each feed as `/gateway/workers` tells it.
"""

import argparse
import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp

from bench._real_traffic import Chat, chats
from bench.real import JSON, TIMEOUT, Driver, Row
from render import Renderer

TURNS = 9
"""Requests for each chat to have one turn."""
AWAY_S = 300
RESET = "/reset_prefix_cache"


def run(argv: Sequence[str]) -> None:
    """Drive a gateway that runs; print a line for each part."""
    parser = argparse.ArgumentParser(
        prog="python -m bench real_faults", description=__doc__
    )
    parser.add_argument("--gateway", required=True, metavar="URL")
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--reset", required=True, metavar="URL", help="a worker")
    parser.add_argument("--restart", required=True, metavar="URL", help="another")
    parser.add_argument(
        "--pid-file",
        required=True,
        type=Path,
        help="of the latter, the leader of its process group",
    )
    parser.add_argument("--start", required=True, help="command that starts it again")
    parser.add_argument("--max-tokens", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(_drive(parser.parse_args(argv)))


class Part:
    """Sends the next requests of a run, and tells what came of them."""

    def __init__(self, driver: Driver, asked: Iterator[Chat], max_tokens: int) -> None:
        self._driver = driver
        self._asked = asked
        self._max_tokens = max_tokens

    async def send(self, what: str, count: int) -> None:
        """So many requests, one after another, then a line."""
        rows = [await self._one() for _ in range(count)]
        told = [row for row in rows if row.predicted is not None]
        print(
            f"{what}: {count} requests, predicted {_sum(told, 'predicted')}, "
            f"delivered {_sum(told, 'delivered')}, sum of differences "
            f"{sum(row.error for row in told)} in {sum(r.error > 0 for r in told)}"
        )
        for row in told:
            if row.error:
                print(
                    f"    {row.form} turn {row.turn + 1} at {row.worker}: "
                    f"predicted {row.predicted}, delivered {row.delivered}"
                )
        await self.states()

    async def _one(self) -> Row:
        chat = next(self._asked)
        row, answer = await self._driver.send(chat.ask(self._max_tokens))
        chat.answers.append(answer.text)
        return row

    async def states(self) -> None:
        """A line for each worker."""
        for worker in (await self._driver.get("/gateway/workers"))["workers"]:
            for feed in worker["feeds"]:
                print(
                    f"    {worker['url']} {worker['state']}, feed {feed['state']} "
                    f"({feed['reason']}), complete {feed['complete']}, "
                    f"sequence {feed['last_sequence']}, {feed['blocks']} blocks, "
                    f"{feed['suspect_blocks']} suspect, {feed['history_blocks']} by "
                    f"history, from {feed['source']}",
                    flush=True,
                )


def _sum(rows: Sequence[Row], field: str) -> int:
    return sum(getattr(row, field) or 0 for row in rows)


async def _drive(options: argparse.Namespace) -> None:
    renderer, name = Renderer.load(options.model), Path(options.model).name
    more = (chats(options.seed + n, 5 * TURNS, name, renderer, odd=False)
            for n in range(4))  # fmt: skip
    asked = itertools.chain.from_iterable(more)
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=JSON) as client:
        part = Part(
            Driver(client, options.gateway, renderer), asked, options.max_tokens
        )
        await part.send("at first", 3 * TURNS)
        await _reset(client, options.reset)
        await part.send(f"{options.reset} was reset", 2 * TURNS)
        await part.send("new chats", 2 * TURNS)
        os.killpg(int(options.pid_file.read_text()), signal.SIGKILL)
        await asyncio.sleep(1)
        await part.send(f"{options.restart} was killed", TURNS)
        starting = await asyncio.create_subprocess_shell(options.start)
        await starting.wait()
        gone = time.monotonic()
        await _until_it_answers(client, options.restart)
        print(f"{options.restart} answers {time.monotonic() - gone:.0f} s after")
        await asyncio.sleep(3)
        await part.states()
        await part.send("it is back", 2 * TURNS)
        await _reset(client, options.restart)
        await part.send(f"{options.restart} was reset", 2 * TURNS)
        await part.send("at last", 2 * TURNS)


async def _reset(client: aiohttp.ClientSession, url: str) -> None:
    async with client.post(url + RESET) as response:
        response.raise_for_status()


async def _until_it_answers(client: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(AWAY_S):
        while True:
            try:
                async with client.get(url + "/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
