"""Opens the record of each request; at its end come its access log line and spans."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.logs.access_log import AccessLog
from gateway.logs.prompts import PromptLog
from gateway.metrics.registry import ServerMetrics
from gateway.settings.shared_config import SharedConfig
from gateway.tracing.record import RECORD, RequestRecord, known_method
from gateway.tracing.setup import Tracing

if TYPE_CHECKING:  # where nothing is traced, OpenTelemetry is not loaded
    from gateway.tracing.spans import Spans

UNTOLD = frozenset({"health", "ready", "metrics", "page"})
"""Endpoints that are asked all the time, by machines: neither logged nor traced."""
NOBODY = (None, None, None)


class Recorder:
    """What keeps records: the access log, the spans, both or neither."""

    def __init__(
        self,
        *,
        access_log: AccessLog | None = None,
        tracing: Tracing | None = None,
        prompts: PromptLog | None = None,
    ) -> None:
        self._access_log = access_log
        self._tracing = tracing
        self._prompts = prompts
        self._spans: Spans | None = None

    @classmethod
    def of(cls, config: SharedConfig, metrics: ServerMetrics) -> "Recorder":
        """As configured; ConfigError where that cannot be done."""
        return cls(
            access_log=AccessLog() if config.access_log else None,
            tracing=Tracing(config, metrics),
            prompts=PromptLog() if config.log_prompts else None,
        )

    async def start(self) -> None:
        """Requests are traced from now on, if that is asked for."""
        if self._tracing is not None:
            self._spans = await asyncio.to_thread(self._tracing.start)

    async def __aenter__(self) -> "Recorder":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """What is recorded has left, or is given up after some seconds."""
        if self._tracing is not None and self._spans is not None:
            await asyncio.to_thread(self._tracing.close)

    def open(
        self, request: web.Request, identity: bytes, endpoint: str
    ) -> RequestRecord | None:
        """The record of a request that came just now, None if nobody would read it."""
        readers = (self._access_log, self._spans, self._prompts)
        if endpoint in UNTOLD or readers == NOBODY:
            return None
        record = RequestRecord(
            request_id=identity.decode("ascii"),
            method=known_method(request.method),
            endpoint=endpoint,
            spans=None if self._spans is None else self._spans.open(request, endpoint),
            prompts=self._prompts,
        )
        request[RECORD] = record
        return record

    def close(self, record: RequestRecord | None, status: int | None) -> None:
        """Its answer is over; `status` is None if its client left before."""
        if record is None:
            return
        record.ended(status)
        if self._access_log is not None:
            self._access_log.write(record, status)
