"""A real Prometheus scrapes a live gateway: every panel has data, and the right one."""

import asyncio
import itertools
from pathlib import Path

import aiohttp
import pytest

from deploy.boards import DASHBOARDS
from deploy.recordings import BEST, DELIVERED, FATES, READY, RECORDINGS, WORKERS_SAVED
from gateway.settings.discovery_config import DnsName
from gateway.upstreams.origin import Origin
from tests.deploy.prometheus import BINARY, Prometheus, scraping
from tests.running import (
    MODEL,
    WITH_EVENTS,
    Running,
    StartGateway,
    StartWorker,
    until,
)

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="prometheus is not installed (Debian: prometheus)"
)
TEXT = "Which harbour is the oldest that is still in use, and who says so? " * 12
PANELS = [
    (f"{dashboard.title}: {panel.title}", line.expr)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for line in panel.lines
]


async def chat_on(gateway: Running) -> None:
    """Streamed chats of several turns, until cancelled."""
    for number in itertools.count():
        messages = [{"role": "user", "content": f"{number // 3}: {TEXT}"}]
        messages += [{"role": "user", "content": "Go on."}] * (number % 3)
        body = {
            "model": MODEL,
            "messages": messages,
            "max_tokens": 4,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        url = gateway.url + "/v1/chat/completions"
        async with gateway.client.post(url, json=body) as response:
            assert response.status == 200
            await response.read()
        own = {"chat_template": "{{ messages }}"}  # is not rendered here
        async with gateway.client.post(url, json=body | own) as response:
            await response.read()
        await asyncio.sleep(0.02)


async def without_data(prometheus: Prometheus) -> list[str]:
    """The panels whose expressions give nothing, and the recordings."""
    named = [*PANELS, *((recording.name, recording.name) for recording in RECORDINGS)]
    return [name for name, expr in named if not await prometheus.values(expr)]


@pytest.mark.timeout(150)
async def test_no_panel_is_without_data(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    tmp_path: Path,
) -> None:
    """With two workers that serve and one that is not there, under traffic."""
    workers = [await start_worker(WITH_EVENTS) for _ in range(2)]
    port = Origin.parse(workers[0].url).port
    gateway = await start_gateway(
        *workers, "http://127.0.0.1:1", workers_dns=(DnsName("localhost", port),)
    )
    traffic = asyncio.create_task(chat_on(gateway))
    empty: list[str] = []

    async def all_have_data() -> bool:
        empty[:] = await without_data(prometheus)
        return not empty

    target = gateway.url.removeprefix("http://")
    try:
        async with scraping(target, tmp_path, client) as prometheus:
            await until(prometheus.is_up, within_s=20)
            try:
                await until(all_have_data, within_s=25)
            except TimeoutError:
                pytest.fail(f"no data: {empty}")
            await check_values(prometheus)
            await end(traffic)
            await until(lambda: adds_up(prometheus))
            await until(lambda: alarmed(prometheus), within_s=20)
    finally:
        await end(traffic)
    assert traffic.cancelled()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel it, and see it end."""
    task.cancel()
    await asyncio.wait({task})


async def alarmed(prometheus: Prometheus) -> bool:
    """An alert is about the worker that is not there."""
    alerts = (await prometheus.get("alerts"))["alerts"]
    return ("KvGatewayWorkerDown", "http://127.0.0.1:1") in {
        (alert["labels"]["alertname"], alert["labels"].get("worker"))
        for alert in alerts
    }


async def adds_up(prometheus: Prometheus) -> bool:
    """Every reported prompt token has its fate, once nothing is on its way."""
    fates = "sum(kv_gateway_prompt_token_fates_total)"
    reported = "sum(kv_gateway_reported_prompt_tokens_total)"
    return await prometheus.values(f"{fates} / {reported}") == [1.0]


async def check_values(prometheus: Prometheus) -> None:
    """What is shown is what happened, and no rule failed."""
    (delivered,) = await prometheus.values(DELIVERED.name)
    (best,) = await prometheus.values(BEST.name)
    assert 0.3 < delivered <= best < 1
    assert sum(await prometheus.values(FATES.name)) > 0
    assert await prometheus.values(READY.name) == [2.0]
    (saved,) = await prometheus.values(WORKERS_SAVED.name)
    assert saved > 0
    groups = (await prometheus.get("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 30
    assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
