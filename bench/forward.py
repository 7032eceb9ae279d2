"""A real worker's answers to chats with their ids, and to the same chats without."""

import argparse
import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from bench._forward_chats import CHATS
from bench._processes import running

TIMEOUT = aiohttp.ClientTimeout(total=120)
PROVEN_S = 60.0
_SAMPLE = re.compile(
    r'^kv_gateway_forwarded_total\{outcome="(\w+)",reason="(\w+)"\} (\S+)$',
    re.MULTILINE,
)
MADE_UP = re.compile(rb"chatcmpl-[\w-]+|call_[0-9a-f]{8,}")
PASSING = ("id", "created", "usage")


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One chat: what became of its ids, and whether both answers say the same."""

    name: str
    status: int
    became: str
    equal: bool


async def compare(gateway: str, worker: str, model: str) -> list[Compared]:
    """Each chat straight to the worker, then through the gateway."""
    async with aiohttp.ClientSession(timeout=TIMEOUT) as client:
        await _until_proven(client, gateway)
        rows = []
        for name, fields in CHATS.items():
            body = {"model": model, "max_tokens": 12, "temperature": 0, **fields}
            body["return_token_ids"] = True
            direct = await _ask(client, worker, body)
            before = await _counts(client, gateway)
            through = await _ask(client, gateway, body)
            became = await _counts(client, gateway) - before
            rows.append(
                Compared(
                    name=name,
                    status=through[0],
                    became=", ".join(" ".join(key) for key in became),
                    equal=direct == through,
                )
            )
        return rows


async def _until_proven(client: aiohttp.ClientSession, gateway: str) -> None:
    """Wait until the worker is; SystemExit with the reason where it is not."""
    forwarding: dict[str, Any] = {}
    for _ in range(int(PROVEN_S)):
        async with client.get(gateway + "/gateway/workers") as response:
            forwarding = (await response.json())["workers"][0]["forwarding"]
        if forwarding["allowed"]:
            return
        await asyncio.sleep(1)
    raise SystemExit(f"the worker is not proven: {forwarding}")


async def _ask(
    client: aiohttp.ClientSession, url: str, body: dict[str, Any]
) -> tuple[int, Any]:
    """Status, and the answer without what is made up for each."""
    async with client.post(url + "/v1/chat/completions", json=body) as response:
        raw = MADE_UP.sub(b"ID", await response.read())
        if response.content_type != "text/event-stream":
            return response.status, _told(msgspec.json.decode(raw))
    events = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: {")]
    return response.status, [_told(msgspec.json.decode(event)) for event in events]


def _told(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in PASSING}


async def _counts(
    client: aiohttp.ClientSession, gateway: str
) -> Counter[tuple[str, str]]:
    async with client.get(gateway + "/metrics") as response:
        found = _SAMPLE.findall(await response.text())
    return Counter({(what, why): int(float(count)) for what, why, count in found})


def run(words: Sequence[str]) -> None:
    """Print a line for each chat; SystemExit 1 where answers differ."""
    parser = argparse.ArgumentParser(
        prog="python -m bench forward", description=__doc__
    )
    parser.add_argument("--worker", required=True, help="URL of a real worker")
    parser.add_argument("--model", required=True, help="its model's directory or id")
    parser.add_argument("--name", help="the model as served (default: its id)")
    options = parser.parse_args(words)
    gateway = ("gateway", "serve", "--workers", options.worker, "--port", "0")
    with running(*gateway, "--model", options.model, "--probe") as (_, url):
        name = options.name or options.model
        rows = asyncio.run(compare(url, options.worker, name))
    for row in rows:
        same = "equal" if row.equal else "DIFFERENT"
        print(f"{row.name:20} {row.status}  {same:10} {row.became}")
    different = sum(not row.equal for row in rows)
    went = sum(row.became.startswith("forwarded") for row in rows)
    print(f"{len(rows)} chats, {went} with ids, {different} answered differently")
    if different:
        raise SystemExit(1)
