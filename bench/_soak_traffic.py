"""The clients of the soak: chats that go on turn by turn, until told to stop."""

import asyncio
import itertools
import random
from collections import Counter

import aiohttp
import msgspec

from simworker.model import NAME
from simworker.workload import Session, Shape, generate

SHAPE = Shape(
    products=4,
    system_sentences=(14, 28),
    turns=(2, 5),
    question_sentences=(1, 3),
    log_lines=(4, 10),
    max_tokens=(10, 40),
)
PAUSE_S = 0.5
TIMEOUT_S = 30.0
SALTED_EVERY = 20


class Traffic:
    """Asks `url` again and again; what went wrong is in `failures`."""

    def __init__(self, client: aiohttp.ClientSession, url: str, *, seed: int) -> None:
        self._client = client
        self._url = url
        self._seed = seed
        self._stopped = False
        self.requests = 0
        self.cached_tokens = 0
        self.failures: Counter[str] = Counter()

    def stop(self) -> None:
        """Begin no more requests."""
        self._stopped = True

    async def run(self, clients: int) -> None:
        """So many clients at once, until stopped."""
        await asyncio.gather(*(self._client_of(number) for number in range(clients)))

    async def _client_of(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {number}")
        await asyncio.sleep(rng.uniform(0.0, 2.0))
        for round_ in itertools.count():
            # The handbooks are those of the seed: clients share them.
            sessions = generate(self._seed + round_ // 8, 64, SHAPE)
            session = sessions[rng.randrange(len(sessions))]
            salt = f"tenant-{number}" if round_ % SALTED_EVERY == 1 else None
            await self._chat(session, salt, rng)
            if self._stopped:
                return

    async def _chat(
        self, session: Session, salt: str | None, rng: random.Random
    ) -> None:
        answers: list[str] = []
        for turn in session.turns:
            if self._stopped:
                return
            body = {
                "model": NAME,
                "messages": session.messages(answers),
                "max_tokens": turn.max_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            if salt is not None:
                body["cache_salt"] = salt
            answer = await self._ask(body)
            if answer is None:
                return
            answers.append(answer)
            await asyncio.sleep(rng.uniform(0.0, 2 * PAUSE_S))

    async def _ask(self, body: dict[str, object]) -> str | None:
        """The text of one answer; None where it failed."""
        self.requests += 1
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with self._client.post(
                f"{self._url}/v1/chat/completions", json=body, timeout=timeout
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failures[f"{type(error).__name__}: {error}"[:100]] += 1
            return None
        if response.status != 200 or not text.endswith("data: [DONE]\n\n"):
            self.failures[f"{response.status}: {text[-200:]}"] += 1
            return None
        return self._read(text)

    def _read(self, text: str) -> str:
        said = []
        for line in text.splitlines():
            if not line.startswith("data: {"):
                continue
            event = msgspec.json.decode(line[6:])
            deltas = [choice.get("delta") or {} for choice in event["choices"]]
            said += [delta.get("content") or "" for delta in deltas]
            details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
            self.cached_tokens += details.get("cached_tokens") or 0
        return "".join(said)
