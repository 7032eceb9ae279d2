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
SESSIONS = 64
SALTED_EVERY = 20
WHOLE_EVERY = 8
ROUNDS = 8
"""Chats of a client until its group has new handbooks."""


class Traffic:
    """Asks `url` again and again; what went wrong is in `failures`.

    Clients are in `groups` that share their handbooks. No two groups have the first
    words of a prompt in common: where nobody waits, what begins alike stays together.
    """

    def __init__(
        self, client: aiohttp.ClientSession, url: str, *, seed: int, groups: int
    ) -> None:
        self._client = client
        self._url = url
        self._seed = seed
        self._groups = groups
        self._stopped = False
        self.requests = 0
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
            # The handbooks are those of the seed: the clients of a group share them.
            edition = 1_000 * (number % self._groups) + round_ // ROUNDS
            session = rng.choice(generate(self._seed + edition, SESSIONS, SHAPE))
            opening = f"Edition {edition} of the handbook. {session.system}"
            session = msgspec.structs.replace(session, system=opening)
            salt = f"tenant-{number}" if round_ % SALTED_EVERY == 1 else None
            fields: dict[str, object] = {"cache_salt": salt} if salt else {}
            if round_ % WHOLE_EVERY != WHOLE_EVERY - 1:
                fields |= {"stream": True, "stream_options": {"include_usage": True}}
            await self._chat(session, fields, rng)
            if self._stopped:
                return

    async def _chat(
        self, session: Session, fields: dict[str, object], rng: random.Random
    ) -> None:
        answers: list[str] = []
        for turn in session.turns:
            if self._stopped:
                return
            body = {
                "model": NAME,
                "messages": session.messages(answers),
                "max_tokens": turn.max_tokens,
            }
            answer = await self._ask(body | fields)
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
        whole = text.endswith("data: [DONE]\n\n" if "stream" in body else "}")
        if response.status != 200 or not whole:
            self.failures[f"{response.status}: {text[-200:]}"] += 1
            return None
        if "stream" not in body:
            text = f"data: {text}"
        return "".join(map(_said, text.splitlines()))


def _said(line: str) -> str:
    """The text in one event, or in a whole answer."""
    if not line.startswith("data: {"):
        return ""
    choices = msgspec.json.decode(line[6:])["choices"]
    parts = [choice.get("delta") or choice.get("message") or {} for choice in choices]
    return "".join([part.get("content") or "" for part in parts])
