"""The demo's client: whole chats, and what it does not take for an answer."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from simworker.traffic import TrafficFailed, drive
from simworker.workload import Session, Turn

CHATS = [
    Session(
        name=f"chat-{n}",
        start_s=0.0,
        system="Be brief.",
        turns=tuple(
            Turn(message=f"question {n}.{turn}", gap_s=0.0, max_tokens=4)
            for turn in range(2)
        ),
    )
    for n in range(3)
]
USAGE = {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 32}}


def events(*values: object) -> str:
    """A stream of these events."""
    lines = [json.dumps(v) if not isinstance(v, str) else v for v in values]
    return "".join(f"data: {line}\n\n" for line in lines)


def piece(text: str) -> dict[str, Any]:
    """An event with text."""
    return {"choices": [{"delta": {"content": text}}]}


GOOD = events(piece("well"), piece(""), piece(", yes"),
              {"choices": [], "usage": USAGE}, "[DONE]")  # fmt: skip

Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve one answer to every chat; the URL, and the bodies that came."""
    runners: list[web.AppRunner] = []

    async def start(answer: str, status: int = 200) -> tuple[str, list[Any]]:
        bodies: list[Any] = []

        async def handle(request: web.Request) -> web.Response:
            bodies.append(await request.json())
            headers = {"X-Sim-Worker": "http://w"}
            kind = "text/event-stream"
            return web.Response(
                text=answer, status=status, headers=headers, content_type=kind
            )

        app = web.Application()
        app.router.add_post("/v1/chat/completions", handle)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}", bodies

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_whole_chats(serve: Serve) -> None:
    """Every turn holds all that was said before; every answer is a sample."""
    url, bodies = await serve(GOOD)
    steps: list[int] = []
    samples = await drive(url, "m", CHATS, lambda: steps.append(1))
    assert len(samples) == len(steps) == 6
    for sample in samples:
        assert (sample.worker, sample.prompt_tokens) == ("http://w", 50)
        assert sample.cached_tokens == 32
        assert 0 < sample.ttft_s < 5
    second = [b["messages"] for b in bodies if len(b["messages"]) == 4]
    assert len(second) == 3
    for messages in second:
        roles = [message["role"] for message in messages]
        assert roles == ["system", "user", "assistant", "user"]
        assert messages[2]["content"] == "well, yes"
    assert all(body["stream"] and body["model"] == "m" for body in bodies)


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (events(piece("half")), 200, "ended before it was complete"),
        (
            events(piece("half"), {"error": {"message": "worker died"}}),
            200,
            "worker died",
        ),
        ("no worker", 503, "503: no worker"),
    ],
)
async def test_what_is_no_answer(
    serve: Serve, answer: str, status: int, said: str
) -> None:
    """A request without a whole answer ends the traffic, and says what came."""
    url, _ = await serve(answer, status)
    with pytest.raises(TrafficFailed, match=said):
        await drive(url, "m", CHATS, lambda: None)


async def test_nobody_there() -> None:
    """A refused connection is no stack trace."""
    with pytest.raises(TrafficFailed, match="ClientConnectorError"):
        await drive("http://127.0.0.1:1", "m", CHATS, lambda: None)
