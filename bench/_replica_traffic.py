"""Chats held with several gateways at a time, as a load balancer spreads them.

Each request goes to any of the gateways. What a connection breaks is sent once more, to
any of them; what is answered with anything but 200 is no such thing, and counted apart.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from simworker.workload import Session

TRIES = 20
PAUSE_S = 0.1
CHATS = "/v1/chat/completions"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request."""

    at_s: float
    """When it was sent first, in seconds since the traffic began."""
    prompt_tokens: int
    cached_tokens: int


class Traffic:
    """The chats, and what came of them."""

    def __init__(self, gateways: Sequence[str], model: str, seed: int = 7) -> None:
        """`gateways` may be changed while they are held."""
        self.gateways = list(gateways)
        self.samples: list[Sample] = []
        self.retried: dict[str, int] = {}
        """Connections that broke, by how."""
        self.refused: dict[str, int] = {}
        """Answers that were no answer: what no client can know to send again."""
        self._model = model
        self._rng = random.Random(seed)
        self._begun = time.monotonic()

    @property
    def now_s(self) -> float:
        """Seconds since the traffic began."""
        return time.monotonic() - self._begun

    async def hold(self, sessions: Sequence[Session]) -> None:
        """Hold all chats to their end."""
        self._begun = time.monotonic()
        # A connection for each request, as short-lived clients have.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=120)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for session in sessions:
                tasks.create_task(self._chat(client, session))

    async def _chat(self, client: aiohttp.ClientSession, session: Session) -> None:
        await asyncio.sleep(session.start_s)
        answers: list[str] = []
        for turn in session.turns:
            await asyncio.sleep(turn.gap_s)
            body = {
                "model": self._model,
                "messages": session.messages(answers),
                "max_tokens": turn.max_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            answers.append(await self._answer(client, body))

    async def _answer(self, client: aiohttp.ClientSession, body: Any) -> str:
        sent = self.now_s
        for _ in range(TRIES):
            url = self._rng.choice(self.gateways)
            try:
                text, usage = await _ask(client, url, body)
            except aiohttp.ClientError as error:
                self._count(self.retried, type(error).__name__)
            except (Refused, TimeoutError) as error:
                self._count(self.refused, str(error) or "answer too late")
            else:
                self._note(sent, usage)
                return text
            await asyncio.sleep(PAUSE_S)
        self._count(self.refused, "never answered")
        return ""

    def _count(self, counts: dict[str, int], what: str) -> None:
        counts[what] = counts.get(what, 0) + 1

    def _note(self, sent: float, usage: dict[str, Any]) -> None:
        details = usage.get("prompt_tokens_details") or {}
        self.samples.append(
            Sample(
                at_s=sent,
                prompt_tokens=usage["prompt_tokens"],
                cached_tokens=details.get("cached_tokens") or 0,
            )
        )


class Refused(Exception):
    """An answer that is none, over a connection that held."""


async def _ask(
    client: aiohttp.ClientSession, url: str, body: Any
) -> tuple[str, dict[str, Any]]:
    """The text of a whole stream, and its usage. Raises Refused, ClientError."""
    pieces: list[str] = []
    usage: dict[str, Any] | None = None
    async with client.post(url + CHATS, json=body) as response:
        if response.status != 200:
            raise Refused(f"status {response.status}")
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = msgspec.json.decode(line[6:])
            if "error" in event:
                raise Refused("an error event")
            usage = event.get("usage") or usage
            pieces += [c["delta"].get("content") or "" for c in event["choices"]]
    if usage is None:
        raise Refused("a stream without an end")
    return "".join(pieces), usage


def hit_rate(
    samples: Sequence[Sample], since_s: float = 0.0, until_s: float = float("inf")
) -> float:
    """The share of prompt tokens that were cached, of requests sent in that time."""
    chosen = [s for s in samples if since_s <= s.at_s < until_s]
    prompt = sum(sample.prompt_tokens for sample in chosen)
    return sum(sample.cached_tokens for sample in chosen) / max(1, prompt)
