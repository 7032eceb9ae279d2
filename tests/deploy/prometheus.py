"""A real Prometheus that scrapes a gateway, as a test sees it."""

import asyncio
import math
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from deploy.__main__ import HERE
from tests.running import free_port

BINARY = shutil.which("prometheus")
JOB = "kv-gateway"
CONFIG = """\
global: {{scrape_interval: 300ms, scrape_timeout: 300ms, evaluation_interval: 300ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: {job}
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """Its HTTP API."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self.url = url
        self._client = client

    async def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer."""
        url = f"{self.url}/api/v1/{path}"
        async with self._client.get(url, params=parameters) as response:
            body = await response.json()
        assert body["status"] == "success", body
        return body["data"]

    async def values(self, expr: str) -> list[float]:
        """What an expression of a panel or rule gives now; NaN is left out."""
        expr = expr.replace("$__rate_interval", "1m").replace("$job", ".+")
        found = (await self.get("query", query=expr))["result"]
        values = [float(series["value"][1]) for series in found]
        return [value for value in values if not math.isnan(value)]

    async def is_up(self) -> bool:
        """Whether it has scraped and evaluated."""
        try:
            return await self.values(f'up{{job="{JOB}"}}') == [1.0]
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def scraping(
    target: str, directory: Path, client: aiohttp.ClientSession
) -> AsyncIterator[Prometheus]:
    """A Prometheus with our rules that scrapes `target`; it ends with the context."""
    rules = HERE / "prometheus" / "rules.yaml"
    config = directory / "prometheus.yml"
    config.write_text(CONFIG.format(rules=rules, job=JOB, target=target))
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        str(BINARY),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Prometheus(f"http://{address}", client)
    finally:
        process.kill()
        await process.wait()
