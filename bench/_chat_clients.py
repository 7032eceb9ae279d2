"""Clients that hold seeded chats with a router, and count what they get.

As the demo's traffic (`simworker/traffic.py`), but that a request may fail: its chat
goes on without an answer to it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from simworker.workload import Session

PATIENCE_S = 120.0


class Asked(msgspec.Struct, kw_only=True):
    """One request, as its client saw it."""

    ttft_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    failure: str = ""
    """What came instead of a whole answer; empty: it came."""


async def hold(url: str, model: str, sessions: Sequence[Session]) -> list[Asked]:
    """All chats at their times; each request of each."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
        chats = [_chat(client, url, model, session) for session in sessions]
        return [asked for chat in await asyncio.gather(*chats) for asked in chat]


async def _chat(
    client: aiohttp.ClientSession, url: str, model: str, session: Session
) -> list[Asked]:
    await asyncio.sleep(session.start_s)
    every: list[Asked] = []
    for turn in session.turns:
        await asyncio.sleep(turn.gap_s)
        body = {
            "model": model,
            "messages": session.messages([asked.text for asked in every]),
            "max_tokens": turn.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        every.append(await _ask(client, url, body))
    return every


async def _ask(client: aiohttp.ClientSession, url: str, body: object) -> Asked:
    asked, begun, texts = Asked(), time.perf_counter(), list[str]()
    usage: dict[str, Any] = {}
    try:
        async with client.post(f"{url}/v1/chat/completions", json=body) as response:
            if response.status != 200:
                asked.failure = f"status {response.status}"
                return asked
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                event = msgspec.json.decode(line[6:])
                asked.ttft_s = asked.ttft_s or time.perf_counter() - begun
                usage = event.get("usage") or usage
                for choice in event.get("choices", ()):
                    texts.append(choice["delta"].get("content") or "")
    except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
        asked.failure = type(error).__name__
        return asked
    details = usage.get("prompt_tokens_details") or {}
    asked.failure = "" if usage else "no usage"
    asked.prompt_tokens = usage.get("prompt_tokens", 0)
    asked.cached_tokens = details.get("cached_tokens") or 0
    asked.text = "".join(texts)
    return asked
