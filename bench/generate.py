"""Rendered requests posted unchanged to a real vLLM's generate route, chat by chat."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import aiohttp

from bench._forward_chats import CHATS

TIMEOUT = aiohttp.ClientTimeout(total=120)
STREAMED = ("stream", "stream_options")


def run(words: Sequence[str]) -> None:
    """Compare, print, and exit with status 1 where an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m bench generate")
    add = parser.add_argument
    add(
        "--render", required=True, metavar="URL", help="kv-gateway render, or a gateway"
    )
    add("--worker", required=True, metavar="URL", help="vLLM with --enable-scale-out")
    add("--name", required=True, help="what both call the model")
    args = parser.parse_args(words)
    rows = asyncio.run(_compare(args.render, args.worker, args.name))
    for name, said in rows.items():
        print(f"{name:18} {said}")
    equal = sum(said == "equal" for said in rows.values())
    refused = sum(said.startswith("not rendered") for said in rows.values())
    print(f"{equal} of {len(rows) - refused} answers equal, {refused} not rendered")
    sys.exit(0 if equal + refused == len(rows) else 1)


async def _compare(render: str, worker: str, model: str) -> dict[str, str]:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as client:
        rows = {}
        for name, fields in CHATS.items():
            body = {"model": model, "max_tokens": 12, "temperature": 0, **fields}
            body = {k: v for k, v in body.items() if k not in STREAMED}
            body["return_token_ids"] = True
            rows[name] = await _one(client, render, worker, body)
        return rows


async def _one(
    client: aiohttp.ClientSession, render: str, worker: str, body: dict[str, Any]
) -> str:
    """What became of one chat, in a few words."""
    status, rendered = await _post(client, render + "/v1/chat/completions/render", body)
    if status != 200:
        return f"not rendered: {status}"
    chat = await _post(client, worker + "/v1/chat/completions", body)
    generated = await _post(client, worker + "/inference/v1/generate", rendered)
    if (chat[0], generated[0]) != (200, 200):
        return f"chat {chat[0]}, generate {generated[0]}"
    return "equal" if _ids(chat[1]) == _ids(generated[1]) else "differs"


def _ids(answer: Any) -> Any:
    return [choice["token_ids"] for choice in answer["choices"]]


async def _post(client: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, Any]:
    async with client.post(url, json=body) as response:
        return response.status, await response.json(content_type=None)
