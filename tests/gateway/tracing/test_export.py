"""The queue of spans: bounded, counted, and no trouble to anybody when it is full."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from gateway.tracing import export
from gateway.tracing.export import SpanQueue
from tests.gateway.scripted import ANSWER, ask, worker
from tests.gateway.tracing.collector import Collector
from tests.running import StartGateway, until

ENDPOINT = "http://collector:4318/v1/traces"


class Scripted(SpanExporter):
    """Answers as told, once it may."""

    def __init__(self) -> None:
        self.result = SpanExportResult.SUCCESS
        self.raises = False
        self.may = threading.Event()
        self.may.set()
        self.batches: list[list[str]] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.may.wait(10)
        if self.raises:
            raise RuntimeError("a fault of the exporter")
        self.batches.append([span.name for span in spans])
        return self.result

    def shutdown(self) -> None:
        self.may.set()


class Queued:
    """A queue of at most 4 spans, in batches of 2, and its counts."""

    def __init__(self, delay_s: float = 0.01) -> None:
        self.exporter = Scripted()
        self.exported = 0
        self.dropped = 0
        self.queue = SpanQueue(
            self.exporter,
            ENDPOINT,
            capacity=4,
            batch=2,
            delay_s=delay_s,
            exported=self._count_exported,
            dropped=self._count_dropped,
        )
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.queue)
        self.tracer: Tracer = provider.get_tracer("test")

    def _count_exported(self, spans: int) -> None:
        self.exported += spans

    def _count_dropped(self, spans: int) -> None:
        self.dropped += spans

    def spans(self, *names: str) -> None:
        """Begin and end spans of these names."""
        for name in names:
            self.tracer.start_span(name).end()


async def test_batches() -> None:
    """A full batch leaves at once, a smaller one after the delay; in order."""
    queued = Queued(delay_s=0.3)
    queued.spans("a", "b", "c")
    await until(lambda: queued.exported == 3)
    assert [name for batch in queued.exporter.batches for name in batch] == [*"abc"]
    assert max(len(batch) for batch in queued.exporter.batches) == 2
    queued.queue.shutdown()
    assert queued.dropped == 0


async def test_a_full_queue() -> None:
    """While the collector does not answer, what exceeds the bound is dropped."""
    queued = Queued()
    queued.exporter.may.clear()
    queued.spans("a", "b")
    await until(lambda: not queued.queue._queue)  # they are on their way
    begun = time.perf_counter()
    queued.spans(*"cdefghij")
    assert time.perf_counter() - begun < 2
    assert queued.dropped == 4
    queued.exporter.may.set()
    await until(lambda: queued.exported == 6)
    queued.queue.shutdown()
    assert (queued.exported, queued.dropped) == (6, 4)


async def test_one_line_when_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    """Not a line for each batch: one when spans do not arrive, one when they do."""
    caplog.set_level(logging.INFO, export.__name__)
    queued = Queued()
    queued.exporter.result = SpanExportResult.FAILURE
    for count in (1, 2, 3):
        queued.spans("a")
        await until(lambda count=count: queued.dropped == count)  # type: ignore[misc]
    queued.exporter.result = SpanExportResult.SUCCESS
    for count in (1, 2):
        queued.spans("b")
        await until(lambda count=count: queued.exported == count)  # type: ignore[misc]
    queued.queue.shutdown()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith(f"spans do not reach {ENDPOINT}, and are dropped: ")
    assert lines[1] == f"spans reach {ENDPOINT} again"


async def test_a_fault_of_the_exporter(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, its batch counted as dropped, and the next one exported."""
    queued = Queued()
    queued.exporter.raises = True
    queued.spans("a")
    await until(lambda: queued.dropped == 1)
    assert "exporting spans failed" in caplog.text
    queued.exporter.raises = False
    queued.spans("b")
    await until(lambda: queued.exported == 1)
    queued.queue.shutdown()


async def test_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits at the end leaves; later spans do not, and are counted."""
    queued = Queued(delay_s=60)
    queued.spans("a")
    await asyncio.to_thread(queued.queue.shutdown)
    assert queued.exporter.batches == [["a"]]
    queued.spans("b")
    assert (queued.exported, queued.dropped) == (1, 1)


async def test_the_end_without_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end does not wait for a collector that does not answer."""
    monkeypatch.setattr(export, "CLOSE_S", 0.1)
    queued = Queued()
    queued.exporter.may.clear()
    queued.exporter.result = SpanExportResult.FAILURE
    queued.spans(*"abcd")
    begun = time.perf_counter()
    await asyncio.to_thread(queued.queue.shutdown)
    assert time.perf_counter() - begun < 2
    assert (queued.exported, queued.dropped) == (0, 4)


async def test_requests_do_not_notice_a_collector_that_is_away(
    start_gateway: StartGateway,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    never_blocks: None,
) -> None:
    """All are answered, spans are counted as dropped; once it is back they arrive."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5")
    caplog.set_level(logging.INFO, export.__name__)
    port = int(collector.url.rpartition(":")[2])
    await collector.stop()
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, otlp_endpoint=collector.endpoint)
        for _ in range(20):
            assert (await ask(gateway))[0] == 200

        async def dropped() -> bool:
            return await gateway.metric("spans_dropped_total") >= 20

        await until(dropped)
        await collector.start(port)
        for _ in range(2):
            assert (await ask(gateway))[0] == 200
        await collector.until_it_has("POST")
        await until(lambda: f"spans reach {collector.endpoint} again" in caplog.text)
    failures = [
        record
        for record in caplog.records
        if record.name == export.__name__ and record.levelname == "WARNING"
    ]
    assert len(failures) == 1
    assert "refused" in failures[0].getMessage()


async def test_a_collector_that_refuses(
    start_gateway: StartGateway, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says how it refuses."""
    collector.status = 401
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, otlp_endpoint=collector.endpoint)
        assert (await ask(gateway))[0] == 200
        await until(lambda: "do not reach" in caplog.text)
    assert "401" in caplog.text
