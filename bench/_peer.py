"""Our render server and a peer's: the same chats in turn, ids compared in each."""

import asyncio
import contextlib
import http.client
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec
from tokenizers import Tokenizer

from bench._processes import free_port, percentile, resident_mb
from bench._raw_client import Connection, request
from bench._texts import Messages, Texts, body

PATH = "/v1/chat/completions/render"
SIZES = (28, 218, 1_000, 3_800)
CLIENTS, CLIENTS_SIZE = 8, 218
REQUESTS = 200
LOAD_S = 3.0
START_S, STOP_S = 180.0, 20.0
MEMORY_MB = 350
OURS, PEER = "ours", "peer"


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A render server that runs: seconds until it was healthy, its model's name."""

    pid: int
    url: str
    start_s: float
    model: str


def compare(command: str, model: Path, rounds: int) -> None:
    """Start both, measure, print; SystemExit where ids differ or one fails."""
    ours = (sys.executable, "-m", "gateway", "render", "--model", str(model),
            "--host", "127.0.0.1", "--log-level", "warning", "--port")  # fmt: skip
    with contextlib.ExitStack() as stack:
        servers = {}
        for name in (PEER, OURS):
            port = free_port()
            words = [*ours, str(port)]
            if name == PEER:
                words = shlex.split(command.replace("{port}", str(port)))
            servers[name] = stack.enter_context(_running(words, port))
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        asyncio.run(_measure(servers, tokenizer, rounds))


async def _measure(
    servers: dict[str, Server], tokenizer: Tokenizer, rounds: int
) -> None:
    texts = Texts(seed=8)

    def questions(size: int, count: int) -> list[Messages]:
        return [texts.question(tokenizer, size) for _ in range(count)]

    print("One client; ms, each chat new and sent to both in turn, ids equal.\n")
    print("| ids | peer p50 | peer p99 | ours p50 | ours p99 | p50 ratio | aim |")
    print("|---:|---:|---:|---:|---:|---:|---|")
    for size in SIZES:
        ids, seconds = await _latencies(servers, questions(size, REQUESTS))
        cells = [
            f"{1e3 * percentile(seconds[name], share):.2f}"
            for name in (PEER, OURS)
            for share in (0.5, 0.99)
        ]
        ratio = statistics.median(seconds[OURS]) / statistics.median(seconds[PEER])
        aim = f"at most 0.50: {_met(ratio <= 0.5)}"
        print(f"| {ids} | {' | '.join(cells)} | {ratio:.2f} | {aim} |", flush=True)
    rates = await _rates(servers, questions(CLIENTS_SIZE, 500), min(rounds, 5))
    started = {name: server.start_s for name, server in servers.items()}
    memory = {name: resident_mb(server.pid) for name, server in servers.items()}
    rate, start = rates[OURS] / rates[PEER], started[OURS] / started[PEER]
    print(f"""
| | peer | ours | ratio | aim |
|---|---:|---:|---:|---|
| requests/s, {CLIENTS} clients, {CLIENTS_SIZE} ids | {rates[PEER]:.0f} | \
{rates[OURS]:.0f} | {rate:.1f} | at least 3: {_met(rate >= 3)} |
| seconds to ready | {started[PEER]:.1f} | {started[OURS]:.1f} | {start:.2f} | \
at most 0.25: {_met(start <= 0.25)} |
| resident MB, after all this | {memory[PEER]:.0f} | {memory[OURS]:.0f} | \
{memory[OURS] / memory[PEER]:.2f} | \
at most {MEMORY_MB} MB: {_met(memory[OURS] <= MEMORY_MB)} |""")


async def _latencies(
    servers: dict[str, Server], chats: list[Messages]
) -> tuple[int, dict[str, list[float]]]:
    """The ids of a chat (median), and the seconds of each request to each server."""
    connections = {n: await Connection.open(s.url) for n, s in servers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    counts = []
    for number, messages in enumerate(chats):
        ids = {}
        for name in (PEER, OURS) if number % 2 else (OURS, PEER):
            server = servers[name]
            message = request(server.url, PATH, body(messages, model=server.model))
            answer, taken = await connections[name].answer(message)
            seconds[name].append(taken)
            ids[name] = json.loads(answer)["token_ids"]
        if ids[OURS] != ids[PEER]:
            raise SystemExit(f"the ids differ: {messages!r:.300}")
        counts.append(len(ids[OURS]))
    for connection in connections.values():
        await connection.close()
    return round(statistics.median(counts)), seconds


async def _rates(
    servers: dict[str, Server], chats: list[Messages], rounds: int
) -> dict[str, float]:
    """Requests a second of each server with several clients; medians of the rounds."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, server in servers.items():
            messages = [
                request(server.url, PATH, body(chat, model=server.model))
                for chat in chats
            ]
            rates[name].append(await _rate(server.url, messages))
    return {name: statistics.median(values) for name, values in rates.items()}


async def _rate(url: str, messages: list[bytes]) -> float:
    begun = time.perf_counter()

    async def work(client: int) -> int:
        connection = await Connection.open(url)
        done = 0
        while time.perf_counter() - begun < LOAD_S:
            message = messages[(client * 61 + done) % len(messages)]
            await connection.answer(message)
            done += 1
        await connection.close()
        return done

    done = await asyncio.gather(*map(work, range(CLIENTS)))
    return sum(done) / (time.perf_counter() - begun)


@contextlib.contextmanager
def _running(words: list[str], port: int) -> Iterator[Server]:
    """A server's process while it runs, in a process group that is ended with it."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        begun = time.perf_counter()
        process = subprocess.Popen(
            words, stdout=said, stderr=said, start_new_session=True
        )
        try:
            _wait_until_healthy(process, port, said)
            yield Server(
                pid=process.pid,
                url=f"http://127.0.0.1:{port}",
                start_s=time.perf_counter() - begun,
                model=_model_name(port),
            )
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_until_healthy(
    process: "subprocess.Popen[bytes]", port: int, said: TextIO
) -> None:
    last = time.monotonic() + START_S
    while time.monotonic() < last:
        if process.poll() is not None:
            said.seek(0)
            end = "\n".join(said.read().splitlines()[-20:])
            raise SystemExit(f"{process.args!r} ended with {process.returncode}\n{end}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            if _get(port, "/health")[0] == 200:
                return
        time.sleep(0.02)
    raise SystemExit(f"{process.args!r} is not healthy after {START_S:.0f} s")


def _model_name(port: int) -> str:
    name: str = json.loads(_get(port, "/v1/models")[1])["data"][0]["id"]
    return name


def _get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _met(reached: bool) -> str:
    return "met" if reached else "missed"
