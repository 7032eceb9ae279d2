"""The traffic of the chaos benchmark: so many requests a second, come what may."""

import asyncio
import json
import random
import time

import aiohttp
import msgspec

MODEL = "chaos"
WORDS = ("every", "worker", "holds", "a", "block", "of", "the", "prefix", "it", "keeps")
STREAMED = 0.8
SESSIONS = 48
PATIENCE_S = 90.0


class Outcome(msgspec.Struct):
    """One request, as its client saw it."""

    name: str
    begun: float
    ended: float = 0.0
    status: int = 0
    whole: bool = False
    error: str = ""
    """The code of the error it got; empty: none."""


class Traffic:
    """Chats of a number of sessions, each behind a prefix of its own."""

    def __init__(self, client: aiohttp.ClientSession, url: str, seed: int) -> None:
        self._client = client
        self._url = url
        self._rng = random.Random(seed)
        self._prefixes = [self._text(600) for _ in range(SESSIONS)]
        self.outcomes: list[Outcome] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, rate: float, seconds: float) -> None:
        """Send `rate` requests a second for that long; return when all have ended."""
        begun = time.monotonic()
        number = 0
        while (now := time.monotonic()) < begun + seconds:
            while number < (now - begun) * rate:
                self._send(number)
                number += 1
            await asyncio.sleep(0.002)
        await asyncio.gather(*self._tasks)

    def _send(self, number: int) -> None:
        prefix = self._prefixes[self._rng.randrange(SESSIONS)]
        stream = self._rng.random() < STREAMED
        body = {
            "model": MODEL,
            "stream": stream,
            "max_tokens": self._rng.randrange(8, 40),
            "messages": [
                {"role": "system", "content": prefix},
                {"role": "user", "content": f"{number}: {self._text(30)}"},
            ],
        }
        outcome = Outcome(f"chaos-{number}", time.monotonic())
        self.outcomes.append(outcome)
        task = asyncio.create_task(self._ask(outcome, body, stream=stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, outcome: Outcome, body: object, *, stream: bool) -> None:
        try:
            async with (
                asyncio.timeout(PATIENCE_S),
                self._client.post(
                    f"{self._url}/v1/chat/completions",
                    json=body,
                    headers={"X-Request-ID": outcome.name},
                ) as response,
            ):
                outcome.status = response.status
                text = await response.read()
            outcome.whole = response.status == 200 and (
                text.endswith(b"data: [DONE]\n\n") if stream else b'"usage"' in text
            )
            outcome.error = "" if outcome.whole else _code(text)
        except (aiohttp.ClientError, TimeoutError) as error:
            outcome.error = "" if outcome.status == 0 else "cut"
            outcome.error = outcome.error or type(error).__name__
        outcome.ended = time.monotonic()

    def _text(self, words: int) -> str:
        return " ".join(self._rng.choice(WORDS) for _ in range(words))


def _code(text: bytes) -> str:
    """The code of an error answer, or of the error event at the end of a stream."""
    last = text.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data: ")
    try:
        return str(json.loads(last)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return "none"
