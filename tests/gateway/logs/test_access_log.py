"""The access log: a line for each request, with what was decided."""

import logging
from typing import Any

import msgspec
import pytest

from gateway.logs.formats import JsonLines, TextLines
from tests.gateway.scripted import ANSWER, CHAT, ask, refusal, worker
from tests.running import MODEL, Running, StartGateway, StartWorker, until

ACCESS = "gateway.access"
TEXT = "one two three four five six seven eight nine ten " * 20


def _records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == ACCESS]


async def _lines(caplog: pytest.LogCaptureFixture, count: int) -> list[dict[str, Any]]:
    """The lines as JSON, once there are so many: they come after the answers."""
    await until(lambda: len(_records(caplog)) >= count)
    assert len(_records(caplog)) == count
    return [msgspec.json.decode(JsonLines().format(r)) for r in _records(caplog)]


async def _chat(gateway: Running, **fields: Any) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": TEXT}]} | fields
    url = gateway.url + "/v1/chat/completions"
    headers = {"X-Request-ID": "mine"}
    async with gateway.client.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        await response.read()


async def test_a_stream(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where it went and why, its tokens, its times."""
    sim = await start_worker()
    gateway = await start_gateway(sim, access_log=True)
    options = {"include_usage": True}
    await _chat(gateway, stream=True, stream_options=options, max_tokens=4)
    await _chat(gateway, max_tokens=4)
    first, second = await _lines(caplog, 2)
    assert first.pop("time")
    assert 0 < first.pop("ttft_s") <= first.pop("duration_s") < 10
    prompt = first["prompt_tokens"]
    assert prompt > 200
    assert first.pop("why")
    assert first.pop("ids") == "worker_blocked"
    assert first == {
        "level": "info",
        "logger": ACCESS,
        "request_id": "mine",
        "method": "POST",
        "endpoint": "chat_completions",
        "status": 200,
        "key": None,
        "model": MODEL,
        "prompt_tokens": prompt,
        "not_rendered": None,
        "attempts": 1,
        "worker": sim.url,
        "rank": 0,
        "hit_tokens": 0,
        "uncached_tokens": prompt,
        "end": "finished",
        "delivered_hit_tokens": 0,
        "completion_tokens": 4,
    }
    assert second["ttft_s"] is None
    assert second["hit_tokens"] == second["delivered_hit_tokens"] > 0
    assert second["uncached_tokens"] == prompt - second["hit_tokens"]


async def test_what_goes_wrong(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal, a busy worker, a worker that is not there: each is one line."""
    async with worker(refusal(b"503 Busy")) as busy, worker(ANSWER) as free:
        gateway = await start_gateway(
            busy.url, free.url, access_log=True, policy="round_robin"
        )
        for _ in range(2):
            assert (await ask(gateway))[0] == 200
        await gateway.get("/collective_rpc", status=404)
        await gateway.post("/v1/chat/completions", {"model": "m"}, 200)
        await gateway.get("/health")
        lines = await _lines(caplog, 4)
    retried = [line for line in lines if line["attempts"] == 2]
    assert [(line["worker"], line["status"]) for line in retried] == [(free.url, 200)]
    closed = lines[2]
    assert closed["status"] == 404
    assert "worker" not in closed
    assert lines[3]["not_rendered"]


async def test_a_model_that_nobody_has(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Its name is any text that a client likes: it is not logged."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, access_log=True)
        await gateway.post("/v1/chat/completions", CHAT | {"model": "any text"})
        (line,) = await _lines(caplog, 1)
    assert line["model"] is None


async def test_a_client_that_leaves(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its line has no status, or that of the answer which it left."""
    sim = await start_worker()
    gateway = await start_gateway(sim, access_log=True)
    messages = [{"role": "user", "content": TEXT}]
    body = {"model": MODEL, "messages": messages, "stream": True, "max_tokens": 5000}
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=body) as response:
        await response.content.readany()
        response.close()
    (line,) = await _lines(caplog, 1)
    assert line["end"] == "client"


async def test_as_text(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """Pairs on one line; what has blanks is quoted; also where little is logged."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, access_log=True, log_level="error")
        await ask(gateway, **{"X-Request-ID": 'a"b=c'})
        await _lines(caplog, 1)
        line = TextLines().format(_records(caplog)[0])
    assert "\n" not in line
    assert f' INFO {ACCESS}: request_id="a\\"b=c" method=POST' in line
    assert f" worker={raw.url} rank=0 " in line
    assert ' why="' in line
    assert " key=- " in line


async def test_off(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """By default there is none."""
    caplog.set_level(logging.DEBUG)
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url)
        assert (await ask(gateway))[0] == 200
    assert not _records(caplog)
