"""Events that are fetched: how often, by whom else, and what fails."""

import asyncio
import logging

import aiohttp
import pytest

from gateway.events import drain
from gateway.workers import monitor
from tests.gateway.drained import Scripted, created, stored
from tests.gateway.fed import TURN, feeds, held, options, sim, states, told, turn
from tests.proxy.raw import json_answer
from tests.running import Running, StartGateway, StartWorker, until


def warned(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Warnings with this text."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and text in record.getMessage()
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (json_answer(b"{}", status=b"503 Busy"), "answers 503"),
        (json_answer(b"{}", status=b"404 Not Found"), "answers 404"),
        (b"", "Disconnected"),
        (b"garbage\r\n\r\n", "BadStatusLine|Expected HTTP|Bad status|ClientResponse"),
    ],
)
async def test_a_fetch_that_fails(
    answer: bytes,
    reason: str,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In doubt until the next ids show that nothing was lost."""
    monkeypatch.setattr(drain, "RETRY_S", 0.05)
    async with Scripted([created(0), stored(1, 1)]) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 1)
        worker.answers += [answer] * 2
        await until(lambda: states(gateway, worker.url) == ["degraded"])
        feed = feeds(gateway, worker.url)[0]
        assert "/kv_cache_events" in feed.reason
        assert any(part in feed.reason for part in reason.split("|"))
        worker.answers += [[stored(2, 2)]]
        await until(lambda: states(gateway, worker.url) == ["live"])
        assert feed.complete
        assert held(gateway, worker.url) == 2


async def test_a_connection_that_rested(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker closes it just when it is used: asked once more, nothing is missed."""
    async with Scripted([created(0), stored(1, 1)], b"", [stored(2, 2)]) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 2)
        assert feeds(gateway, worker.url)[0].complete
    assert "degraded" not in caplog.text


async def test_answers_that_are_no_events(start_gateway: StartGateway) -> None:
    """Counted, and the next ones are read."""
    odd = [b'["x", 1, null, {"event_id": "z"}]', b"[[[[[]]]]]"]
    async with Scripted([created(0), stored(1, 1)], *map(json_answer, odd)) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: not worker.answers)
        worker.answers += [[stored(2, 2)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert await gateway.metric("undecodable_events_total") > 0


@pytest.mark.parametrize("body", [b"null", b'{"error": "x"}', b"<html>", b""])
async def test_answers_that_are_no_list(
    body: bytes,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A drain that fails: said once, asked ever more seldom, until it has events."""
    monkeypatch.setattr(drain, "RETRY_S", 0.02)
    async with Scripted([created(0), stored(1, 1)]) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: held(gateway, worker.url) == 1)
        caplog.clear()
        worker.answers += [json_answer(body)] * 4
        await until(lambda: not worker.answers)
        feed = feeds(gateway, worker.url)[0]
        assert feed.state == "degraded"
        assert feed.reason == "POST /kv_cache_events: answers no list"
        assert len(warned(caplog, "answers no list")) == 1
        worker.answers += [[stored(2, 2)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert feed.complete
        assert feed.counters.undecodable == {}


async def test_answers_without_end_are_cut(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker makes the gateway hold more than so much; its events are missed."""
    monkeypatch.setattr(drain, "ANSWER_LIMIT", 10_000)
    monkeypatch.setattr(drain, "RETRY_S", 0.05)
    large = [stored(n, n) for n in range(2, 40)]
    async with Scripted([created(0), stored(1, 1)], large) as worker:
        gateway = await start_gateway(worker.url)
        await until(lambda: states(gateway, worker.url) == ["degraded"])
        assert "more than 10000" in feeds(gateway, worker.url)[0].reason
        worker.answers += [[stored(40, 40)]]
        await until(lambda: held(gateway, worker.url) == 2)
        assert feeds(gateway, worker.url)[0].counters.gaps == 1


async def test_a_worker_that_hangs(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch has a time limit; requests are served meanwhile."""
    monkeypatch.setattr(drain, "TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    monkeypatch.setattr(drain, "RETRY_S", 0.05)
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/faults", drain="hang", pause_s=1.0)
    await gateway.chat(turn(1))
    await until(lambda: "no answer in time" in feeds(gateway, worker)[0].reason)
    await sim(gateway, worker, "/sim/faults")
    await gateway.chat(turn(2))
    await until(lambda: _knows(gateway, 2))


async def _knows(gateway: Running, number: int) -> bool:
    return await told(gateway, turn(number)) >= 8 * 16


async def test_another_consumer_is_noticed(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each event is handed out once: what another fetched is missing, and is said."""
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    thief = asyncio.create_task(_fetch_away(gateway, worker.url))
    for number in range(12):
        await gateway.chat(turn(number))
    thief.cancel()
    await gateway.chat(turn(20))
    await until(lambda: warned(caplog, "event ids have holes"))
    (line,) = warned(caplog, "event ids have holes")
    assert worker.url in line
    assert "another consumer" in line
    assert states(gateway, worker) == ["degraded"]
    assert "drain" in feeds(gateway, worker)[0].reason


async def _fetch_away(gateway: Running, url: str) -> None:
    while True:
        async with gateway.client.post(url + "/kv_cache_events") as response:
            await response.read()
        await asyncio.sleep(0.005)


async def test_a_buffer_that_runs_over(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest events are gone: in doubt, and the setting is named."""
    monkeypatch.setattr(drain, "BUSY_S", 2.0)
    worker = await start_worker(options("trtllm", event_buffer=4))
    gateway = await start_gateway(worker)
    await asyncio.gather(*(gateway.chat(turn(number)) for number in range(12)))
    await until(lambda: warned(caplog, "event ids have holes"))
    (line,) = warned(caplog, "event ids have holes")
    assert "event_buffer_max_size" in line


async def test_a_restart_in_place(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ids begin anew with a new cache: nothing of the old one is believed."""
    monkeypatch.setattr(monitor, "REFRESH_S", 0.2)
    worker = await start_worker(options("trtllm"))
    gateway = await start_gateway(worker)
    await gateway.chat(TURN)
    await until(lambda: held(gateway, worker) > 0)
    await sim(gateway, worker, "/sim/restart")
    await until(lambda: feeds(gateway, worker)[0].counters.restarts == 1)
    assert held(gateway, worker) == 0
    assert states(gateway, worker) == ["live"]
    assert feeds(gateway, worker)[0].complete
    answer = await gateway.chat(TURN)
    assert answer.cached == 0
    await until(lambda: held(gateway, worker) > 0)
