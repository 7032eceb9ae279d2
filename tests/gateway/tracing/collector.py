"""An OpenTelemetry collector for tests: OTLP over real HTTP, in protobuf."""

from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from tests.running import until

PROTOBUF = "application/x-protobuf"


class ReceivedSpan:
    """A span as the collector got it."""

    def __init__(self, span: SpanMessage) -> None:
        self.name = span.name
        self.trace_id = span.trace_id.hex()
        self.span_id = span.span_id.hex()
        self.parent_id = span.parent_span_id.hex()
        self.trace_state = span.trace_state
        self.kind = SpanMessage.SpanKind.Name(span.kind)
        self.failed = span.status.code == 2
        self.begin = span.start_time_unix_nano
        self.end = span.end_time_unix_nano
        self.attributes: dict[str, Any] = {
            pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
            for pair in span.attributes
        }


class Collector:
    """What was exported to it. `status` is what it answers with."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.resource: dict[str, str] = {}
        self.headers: list[dict[str, str]] = []
        self.raw = b""
        self.status = 200
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        """Serve on a port; `url` is its address."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    @property
    def endpoint(self) -> str:
        """Where spans go."""
        return self.url + "/v1/traces"

    async def stop(self) -> None:
        """Be gone."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def until_it_has(self, *names: str) -> dict[str, ReceivedSpan]:
        """Wait for spans that begin with these names; they, by that name."""

        def found() -> bool:
            return all(self.named(name) for name in names)

        await until(found)
        return {name: self.named(name)[0] for name in names}

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans whose names begin so."""
        return [span for span in self.spans if span.name.startswith(name)]

    async def _take(self, request: web.Request) -> web.Response:
        assert request.content_type == PROTOBUF
        body = await request.read()
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        if self.status != 200:
            return web.Response(status=self.status)
        self.raw += body
        exported = ExportTraceServiceRequest.FromString(body)
        for of_resource in exported.resource_spans:
            for pair in of_resource.resource.attributes:
                self.resource[pair.key] = pair.value.string_value
            for of_scope in of_resource.scope_spans:
                self.spans += [ReceivedSpan(span) for span in of_scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type=PROTOBUF)
