"""The render server under strain: large bodies, many clients, slow ones, faults."""

import asyncio
import json
import threading
from typing import Any

import pytest

from gateway.threads import Late
from tests.gateway.render_rig import RunningRenderServer, StartRenderServer
from tests.proxy.raw import RawClient
from tests.running import MODEL

CHAT = "/v1/chat/completions/render"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}

pytestmark = pytest.mark.usefixtures("never_blocks")


async def test_bodies_above_the_limit(start_render_server: StartRenderServer) -> None:
    """413 by the announced length, or once too much has come."""
    server = await start_render_server(max_body=1000)
    status, answer, _ = await server.send(CHAT, b"x" * 1001)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")

    async def pieces() -> Any:
        for _ in range(50):
            yield b"x" * 100

    headers = {"Content-Type": "application/json"}
    async with server.client.post(
        server.url + CHAT, data=pieces(), headers=headers
    ) as response:
        assert response.status == 413


async def test_a_prompt_of_megabytes_is_refused_fast(
    start_render_server: StartRenderServer,
) -> None:
    """What cannot fit the model is not tokenized."""
    server = await start_render_server(max_model_len=4096)
    body = HELLO | {"messages": [{"role": "user", "content": "word " * 3_000_000}]}
    async with asyncio.timeout(5):
        status, answer, _ = await server.send(CHAT, body)
    assert status == 400
    assert answer["error"]["param"] == "input_text"


async def test_eight_clients(start_render_server: StartRenderServer) -> None:
    """Each gets its own answer, however many ask at once."""
    server = await start_render_server()

    async def client(number: int) -> None:
        for turn in range(20):
            name = f"client {number} turn {turn}"
            body = HELLO | {"messages": [{"role": "user", "content": name}]}
            _, answer, headers = await server.send(
                CHAT + "?prompt_text=1", body, **{"X-Request-Id": f"{number}-{turn}"}
            )
            assert answer["request_id"] == f"chatcmpl-{number}-{turn}"
            assert name in json.dumps(answer)
            assert headers["X-Request-ID"] == f"{number}-{turn}"

    async with asyncio.timeout(20):
        await asyncio.gather(*(client(number) for number in range(8)))
    assert await server.metric("requests_total", endpoint="chat_render") == 160
    assert await server.metric("render_seconds_count") == 160
    assert await server.metric("internal_errors_total") == 0


async def test_a_stalled_client(
    start_render_server: StartRenderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds up nobody else, and is told after a while."""
    monkeypatch.setattr("gateway.request.body.STALL_S", 0.3)
    server = await start_render_server()
    async with RawClient(server.port) as stalled:
        await stalled.send(
            b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 500\r\n\r\n{" % CHAT.encode()
        )
        assert (await server.send(CHAT, HELLO))[0] == 200
        head, body = await stalled.answer()
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "bad_framing"


async def test_a_full_queue(start_render_server: StartRenderServer) -> None:
    """More than may wait: 503, and when to ask again; then it goes on."""
    server = await start_render_server(render_threads=1, render_queue=2)
    release = threading.Event()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(server.server.threads.run(lambda: release.wait(10)))
        await asyncio.sleep(0)
        status, answer, headers = await server.send(CHAT, HELLO)
        release.set()
    assert (status, answer["error"]["code"]) == (503, "render_busy")
    assert headers["Retry-After"] == "1"
    assert (await server.send(CHAT, HELLO))[0] == 200


async def test_the_deadline(
    start_render_server: StartRenderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rendering that takes too long: 504, and clients may try again."""
    monkeypatch.setattr("gateway.endpoints.render_endpoints.DEADLINE_S", 0.1)
    server = await start_render_server(render_threads=1)
    release = threading.Event()
    async with asyncio.TaskGroup() as tasks:
        late = tasks.create_task(_late(server, release))
        await asyncio.sleep(0)
        status, answer, headers = await server.send(CHAT, HELLO)
        release.set()
    assert (status, answer["error"]["code"]) == (504, "render_timeout")
    assert "x-should-retry" not in headers
    assert late.result()


async def _late(server: RunningRenderServer, release: threading.Event) -> bool:
    with pytest.raises(Late):
        await server.server.threads.run(lambda: release.wait(10))
    return True


async def test_faults_are_answered(
    start_render_server: StartRenderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours is a 500 with an id and a count, and says nothing private."""
    server = await start_render_server()
    monkeypatch.setattr(server.server.service, "options", None)
    status, answer, headers = await server.send(CHAT, HELLO)
    assert (status, answer["error"]["code"]) == (500, "internal_error")
    assert "NoneType" not in json.dumps(answer)
    assert headers["X-Request-ID"]
    assert await server.metric("internal_errors_total", where="handler") == 1
