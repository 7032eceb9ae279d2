"""A collector, and workers that tell which headers they got."""

from collections.abc import AsyncIterator

import pytest

from tests.gateway.tracing.collector import Collector


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    """A collector that is there; spans come to it soon."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    collector = Collector()
    await collector.start()
    yield collector
    await collector.stop()
