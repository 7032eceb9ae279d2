"""Drives the demo's chats through a gateway, as a patient OpenAI client would."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from simworker.report import Sample
from simworker.workload import Session

WORKER_HEADER = "X-Sim-Worker"
"""Simulated workers name themselves in their answers; a gateway passes it on."""


class TrafficFailed(Exception):
    """A request got no whole answer; the text says what came instead."""


class _Answer(msgspec.Struct, kw_only=True):
    """What one stream brought so far."""

    text: list[str] = []
    usage: dict[str, Any] | None = None
    first_s: float | None = None


async def drive(
    url: str, model: str, sessions: Sequence[Session], done: Callable[[], None]
) -> list[Sample]:
    """Hold every session's chat with `url`; `done` is called after each request.

    Raises TrafficFailed.
    """
    samples: list[Sample] = []
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as client:
        try:
            async with asyncio.TaskGroup() as tasks:
                for session in sessions:
                    chat = _chat(client, url, model, session, samples, done)
                    tasks.create_task(chat)
        except* TrafficFailed as group:
            raise group.exceptions[0] from None
        except* (aiohttp.ClientError, TimeoutError) as group:
            error = group.exceptions[0]
            raise TrafficFailed(f"{type(error).__name__}: {error}") from None
    return samples


async def _chat(
    client: aiohttp.ClientSession,
    url: str,
    model: str,
    session: Session,
    samples: list[Sample],
    done: Callable[[], None],
) -> None:
    await asyncio.sleep(session.start_s)
    answers: list[str] = []
    for turn in session.turns:
        await asyncio.sleep(turn.gap_s)
        body = {
            "model": model,
            "messages": session.messages(answers),
            "max_tokens": turn.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sample, text = await _ask(client, url, body)
        samples.append(sample)
        answers.append(text)
        done()


async def _ask(
    client: aiohttp.ClientSession, url: str, body: Mapping[str, object]
) -> tuple[Sample, str]:
    begun = time.perf_counter()
    answer = _Answer(text=[])
    async with client.post(f"{url}/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise TrafficFailed(f"{response.status}: {(await response.text())[:200]}")
        async for line in response.content:
            _take(answer, line, begun)
        worker = response.headers.get(WORKER_HEADER, "")
    if answer.usage is None or answer.first_s is None:
        raise TrafficFailed("an answer ended before it was complete")
    details = answer.usage.get("prompt_tokens_details") or {}
    sample = Sample(
        worker=worker,
        prompt_tokens=answer.usage["prompt_tokens"],
        cached_tokens=details.get("cached_tokens") or 0,
        ttft_s=answer.first_s,
    )
    return sample, "".join(answer.text)


def _take(answer: _Answer, line: bytes, begun: float) -> None:
    """One line of the event stream."""
    if not line.startswith(b"data: {"):
        return
    event = msgspec.json.decode(line[6:])
    if "error" in event:
        raise TrafficFailed(str(event["error"]))
    if answer.first_s is None:
        answer.first_s = time.perf_counter() - begun
    answer.usage = event.get("usage") or answer.usage
    for choice in event["choices"]:
        answer.text.append(choice["delta"].get("content") or "")
