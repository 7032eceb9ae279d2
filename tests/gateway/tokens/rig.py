"""Fleets in which workers take token ids only, and what a client sees of them."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from simworker.options import SimOptions
from tests.running import MODEL, SIM, WITH_EVENTS

TOKENS = msgspec.structs.replace(SIM, api="tokens")
"""A simulated worker that takes ids only."""
TOKENS_WITH_EVENTS = msgspec.structs.replace(WITH_EVENTS, api="tokens")
USER = {"role": "user", "content": "What do lighthouses have in common?"}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def answering(options: SimOptions, path: Any, *lines: dict[str, Any]) -> SimOptions:
    """The same with fixed answers, written to a file."""
    path.write_text("\n".join(map(json.dumps, lines)))
    return msgspec.structs.replace(options, answers=str(path))


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    """A chat body; of one user's message if none are given."""
    body = {"model": MODEL, "messages": list(messages) or [USER], "max_tokens": 12}
    return body | fields


class Told:
    """An answer: its status, its headers, and the JSON or the events in it."""

    def __init__(self, response: aiohttp.ClientResponse, text: str) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = text
        self.body: Any = None
        self.events: list[Any] = []
        if response.content_type == "text/event-stream":
            data = [line[6:] for line in text.split("\n\n") if line]
            assert data[-1] == "[DONE]", text
            self.events = [json.loads(one) for one in data[:-1]]
        elif text:
            self.body = json.loads(text)


async def ask(
    client: aiohttp.ClientSession, url: str, body: Any, path: str = CHAT, **headers: str
) -> Told:
    """What a server tells."""
    sent = {"X-Request-Id": "same", "Content-Type": "application/json", **headers}
    raw = io.BytesIO(json.dumps(body).encode())
    async with client.post(url + path, data=raw, headers=sent) as response:
        return Told(response, await response.text())


@asynccontextmanager
async def streaming(
    client: aiohttp.ClientSession, url: str, body: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    """An answer while it comes."""
    async with client.post(url + CHAT, json=body | {"stream": True}) as response:
        yield response


def neutral(told: Any) -> Any:
    """An answer without what two of the same differ in."""
    if isinstance(told, list):
        return [neutral(one) for one in told]
    left = {k: v for k, v in told.items() if k not in ("created", "system_fingerprint")}
    return left | {"fingerprint": "system_fingerprint" in told}
