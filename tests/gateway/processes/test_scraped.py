"""A real Prometheus scrapes a gateway of two processes, by its port for operators."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from deploy.recordings import READY
from render import Renderer
from tests.deploy.prometheus import BINARY, Prometheus, scraping
from tests.gateway.processes.rig import Several, several, workers
from tests.running import until

pytestmark = pytest.mark.skipif(
    BINARY is None, reason="prometheus is not installed (Debian: prometheus)"
)
CHATS = 8
ANSWERED = "kv_gateway_requests_total{endpoint='chat_completions'}"


async def test_both_are_scraped(
    renderer: Renderer, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """Each has series of its own, whose sums are right; no rule minds the label."""
    with (
        workers(renderer, "vllm") as (worker,),
        several(tmp_path / "log", "--workers", worker.url) as gateway,
    ):
        target = gateway.operators.removeprefix("http://")
        async with scraping(target, tmp_path, client) as prometheus:
            await until(prometheus.is_up, within_s=20)
            await asyncio.to_thread(_chat, gateway)
            await until(lambda: _is_told(prometheus), within_s=20)
            starts = "count by (process) (kv_gateway_process_restarts_total)"
            assert await prometheus.values(starts) == [1.0, 1.0]
            groups = (await prometheus.get("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []


def _chat(gateway: Several) -> None:
    assert [gateway.chat("hello ") for _ in range(CHATS)] == CHATS * [200]


async def _is_told(prometheus: Prometheus) -> bool:
    """Every chat is counted once, and the worker is one worker to each process."""
    processes = await prometheus.values("count by (process) (kv_gateway_index_blocks)")
    answered = await prometheus.values(f"sum({ANSWERED})")
    ready = await prometheus.values(READY.name)
    return (processes, answered, ready) == ([1.0, 1.0], [float(CHATS)], [1.0])
