"""docs/tracing.md: its commands are taken, its tables are what is sent and logged."""

import re
import shlex

import pytest

from gateway.cli import parser
from gateway.logs.access_log import log
from gateway.settings.config import Config
from gateway.settings.reading import read
from tests.documents import ROOT
from tests.gateway.tracing.collector import Collector
from tests.running import MODEL, StartGateway, StartWorker, until

PAGE = (ROOT / "docs" / "tracing.md").read_text()


def _table(mark: str) -> list[list[str]]:
    """The cells of a table of the page, without its head."""
    part = PAGE.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- /{mark} -->")[0]
    return [line.strip("|").split("|") for line in part.splitlines()[2:]]


def _names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_commands_are_taken() -> None:
    """With what the page says of them as a result."""
    configs = []
    for command in re.findall(r"^    (.*kv-gateway .*)$", PAGE, re.MULTILINE):
        words = shlex.split(command)
        given = words[words.index("kv-gateway") + 1 :]
        configs.append(read(Config, parser("serve").parse_args(["serve", *given]), {}))
    endpoints = [config.otlp_endpoint for config in configs]
    assert endpoints == ["http://collector:4318/v1/traces"] * 2 + [None]
    assert (configs[2].log_format, configs[2].access_log) == ("json", True)


async def test_the_tables(
    collector: Collector,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spans, their kinds and attributes, and the fields of an access line."""
    gateway = await start_gateway(
        await start_worker(), otlp_endpoint=collector.endpoint, access_log=True
    )
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello " * 40}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=body) as response:
        await response.read()
    rows = {_names(row[0])[0]: row for row in _table("spans")}
    await collector.until_it_has(*rows)
    assert len(collector.spans) == len(rows)
    for span in collector.spans:
        row = rows[span.name]
        assert span.kind == "SPAN_KIND_" + row[1].strip().upper()
        assert set(span.attributes) == set(_names(row[3])), span.name

    def access() -> list[dict[str, object]]:
        return [r.__dict__["fields"] for r in caplog.records if r.name == log.name]

    await until(access)
    told = [name for row in _table("access log") for name in _names(row[0])]
    assert set(access()[0]) == set(told)
