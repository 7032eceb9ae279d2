"""Spans on their way to a collector: a bounded queue, and a thread that empties it.

The event loop only appends. Where the collector is away or slow, spans are dropped and
counted; requests go on. Loaded only where traces are on.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger(__name__)

EXPORTER_LOG = "opentelemetry.exporter"
CLOSE_S = 3.0
"""Seconds that what is queued at the end has to reach the collector."""

Count = Callable[[int], None]


class SpanQueue(SpanProcessor):
    """Exports spans in batches, in a thread of its own."""

    def __init__(
        self,
        exporter: SpanExporter,
        endpoint: str,
        *,
        capacity: int,
        batch: int,
        delay_s: float,
        exported: Count,
        dropped: Count,
    ) -> None:
        """At most `capacity` spans wait, for `delay_s` or until there are `batch`.

        `exported` and `dropped` count spans; they are called in any thread.
        """
        self._exporter = exporter
        self._endpoint = endpoint
        self._capacity = capacity
        self._batch = batch
        self._delay_s = delay_s
        self._exported = exported
        self._dropped = dropped
        self._queue: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._failing = False
        self._why = _LastWord.of(EXPORTER_LOG)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span that is over, or drop it; never waits."""
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        if self._closing or len(self._queue) >= self._capacity:
            self._dropped(1)
            return
        self._queue.append(span)
        if len(self._queue) >= self._batch:
            self._wake.set()

    def shutdown(self) -> None:
        """Export what waits, within `CLOSE_S`; the rest is dropped. Blocks."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_S)
        self._exporter.shutdown()  # ends a retry that sleeps
        self._thread.join(CLOSE_S)
        self._dropped(len(self._queue))
        self._queue.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Spans leave on their own."""
        return True

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._delay_s)
            self._wake.clear()
            self._drain()
        self._drain()

    def _drain(self) -> None:
        while self._queue:
            count = min(len(self._queue), self._batch)
            spans = [self._queue.popleft() for _ in range(count)]
            if self._export(spans):
                self._exported(count)
            else:
                self._dropped(count)
                if self._closing:
                    return

    def _export(self, spans: list[ReadableSpan]) -> bool:
        try:
            result = self._exporter.export(spans)
        except Exception:
            # The thread must live on; the next batch may be another matter.
            log.exception("exporting spans failed")
            return False
        succeeded = result is SpanExportResult.SUCCESS
        if succeeded and self._failing:
            log.info("spans reach %s again", self._endpoint)
        elif not succeeded and not self._failing:
            text = "spans do not reach %s, and are dropped: %s"
            log.warning(text, self._endpoint, self._why.text)
        self._failing = not succeeded
        return succeeded


class _LastWord(logging.Handler):
    """Keeps what the exporter says of each failure, instead of its log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "for no known reason"
        self._cause: str | None = None

    @classmethod
    def of(cls, name: str) -> "_LastWord":
        logger = logging.getLogger(name)
        word = cls()
        logger.handlers = [word]
        logger.propagate = False
        return word

    def emit(self, record: logging.LogRecord) -> None:
        """A warning tells why it tries again, the error at last that it does not."""
        if record.levelno >= logging.ERROR:
            self.text = self._cause or record.getMessage()
            self._cause = None
        else:
            self._cause = record.getMessage()
