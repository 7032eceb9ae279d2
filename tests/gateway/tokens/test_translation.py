"""Several prompts' streams in one answer, where its client is slow."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from gateway.threads import Threads
from gateway.tokens.translation import Translation
from gateway.upstreams.upstream_response import UpstreamResponse

ERROR = b'data: {"error": {"message": "engine died"}}\n\n'
DONE = b"data: [DONE]\n\n"


class Connection:
    """That of a worker: it does what it is told."""

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Client:
    """What it got."""

    def __init__(self) -> None:
        self.said = b""

    def data(self, pieces: list[bytes]) -> None:
        self.said += b"".join(pieces)

    def end(self) -> None:
        self.said += b"END"

    def failed(self, error: Exception) -> None:
        self.said += str(error).encode()


def answer() -> UpstreamResponse:
    """The head of a prompt's stream."""
    flow = cast(Any, Connection())
    return UpstreamResponse(status=200, reason=b"OK", headers=[], flow=flow)


async def step() -> None:
    """Whatever can be done is done."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_end_of_another_prompt_does_not_swallow_an_error() -> None:
    """The error waits for the client when the other prompt's body ends."""
    sources = [answer(), answer()]

    async def opened(prompt: int) -> UpstreamResponse:
        return sources[prompt]

    generation = SimpleNamespace(prompts=sources)
    threads = Threads(threads=1, queue=1, deadline=1.0)
    translation = Translation(
        cast(Any, SimpleNamespace(generation=generation, open=opened, stops=True)),
        sources[0],
        cast(Any, SimpleNamespace(kept=0, shown=None, last=DONE)),
        threads=threads,
        aborts=cast(Any, SimpleNamespace(tell=lambda *told: None)),
        metrics=cast(Any, None),
    )
    client = Client()
    translation.response.attach(client)
    await step()
    sources[1].push([DONE])
    await step()
    translation.pause()
    sources[0].push([ERROR + DONE])
    await step()
    sources[1].finish()
    await step()
    translation.resume()
    sources[0].finish()
    await step()
    assert client.said == ERROR + DONE + b"END"
    threads.close()
