"""The spans of a request, in OpenTelemetry's words. Loaded only where traces are on.

One for the request (SERVER), in it `render`, `decide`, and one (CLIENT) for each worker
that was tried, which is what the worker's own spans hang on; in that, `upstream wait`
until the answer's first byte, and `stream` from there to its end. Attributes follow the
semantic conventions for HTTP and for generative AI; those of ours begin with
`kv_gateway`. None holds text of a prompt or an answer.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from aiohttp import web
from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.request.headers import RawHeaders
from gateway.tracing.record import (
    TRACE_HEADERS,
    AttemptRecord,
    RequestRecord,
    known_method,
)
from router.decision import Decision
from router.request import Usage

OPERATIONS: Mapping[str, str] = {
    "chat_completions": "chat",
    "responses": "chat",
    "completions": "text_completion",
}
"""`gen_ai.operation.name` of an endpoint."""
SERVER_ERRORS = 500
CLIENT_LEFT = "client"
WELL = frozenset({"finished", "client"})
"""Ends of an attempt that are no error of the worker's."""

_PROPAGATOR = TraceContextTextMapPropagator()


class Spans:
    """Opens the spans of requests."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def open(self, request: web.Request, endpoint: str) -> "RequestSpans":
        """Those of a request, within the trace of its client if it has one."""
        method = known_method(request.method)
        resource = request.match_info.route.resource
        route = endpoint if resource is None else resource.canonical
        span = self._tracer.start_span(
            f"{method} {route}",
            context=_clients_context(request.raw_headers),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "kv_gateway.endpoint": endpoint,
            },
        )
        return RequestSpans(self._tracer, span)


class RequestSpans:
    """The spans of one request."""

    __slots__ = ("_context", "_span", "_tracer")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span, Context())

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A span around a step of the gateway's own."""
        if not self._span.is_recording():
            yield
            return
        span = self._tracer.start_span(name, context=self._context)
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            span.end()

    def attempt(self, record: RequestRecord, decision: Decision) -> "AttemptSpans":
        """The spans of an attempt at a worker."""
        operation = OPERATIONS.get(record.endpoint)
        name = operation or record.method
        if operation is not None and record.model is not None:
            name = f"{operation} {record.model}"
        span = self._tracer.start_span(
            name, context=self._context, kind=SpanKind.CLIENT
        )
        if span.is_recording():
            span.set_attributes(_of_decision(decision))
            span.set_attributes(_of_request(record, operation))
        return AttemptSpans(self._tracer, span)

    def ended(self, record: RequestRecord, status: int | None) -> None:
        """The request is over."""
        span = self._span
        if span.is_recording():
            span.set_attribute("kv_gateway.request_id", record.request_id)
            span.set_attributes(_of_request(record, OPERATIONS.get(record.endpoint)))
            if record.key is not None:
                span.set_attribute("kv_gateway.key", record.key)
            if record.not_rendered is not None:
                span.set_attribute("kv_gateway.not_rendered", record.not_rendered)
            if status is None:
                span.set_attribute("error.type", CLIENT_LEFT)
            else:
                span.set_attribute("http.response.status_code", status)
                if status >= SERVER_ERRORS:
                    _fail(span, str(status))
        span.end()


class AttemptSpans:
    """The spans of one attempt: the exchange, and what it waits for."""

    __slots__ = ("_context", "_phase", "_span", "_tracer")

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span, Context())
        self._phase = self._begin("upstream wait")

    def _begin(self, name: str) -> Span | None:
        if not self._span.is_recording():
            return None
        return self._tracer.start_span(name, context=self._context)

    def headers(self) -> RawHeaders:
        """`traceparent`, and `tracestate` where there is one, for the worker."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        return [(name.encode(), value.encode()) for name, value in carrier.items()]

    def first_byte(self) -> None:
        """The wait is over, the answer streams."""
        if self._phase is not None:
            self._phase.end()
            self._phase = self._begin("stream")

    def ended(self, attempt: AttemptRecord) -> None:
        """The exchange is over."""
        if self._phase is not None:
            self._phase.end()
        span = self._span
        if span.is_recording():
            if attempt.status is not None:
                span.set_attribute("http.response.status_code", attempt.status)
            if attempt.usage is not None:
                span.set_attributes(_of_usage(attempt.usage))
            if attempt.end == CLIENT_LEFT:
                span.set_attribute("error.type", CLIENT_LEFT)
            elif attempt.end not in WELL:
                _fail(span, attempt.end or "unknown")
        span.end()


def _clients_context(headers: RawHeaders) -> Context:
    """The context that a client's headers name; an empty one without, or if broken."""
    carrier: dict[str, list[str]] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in TRACE_HEADERS:
            carrier.setdefault(lower.decode(), []).append(value.decode("latin-1"))
    if len(carrier.get("traceparent", ())) != 1:  # of several, none is the client's
        return Context()
    return _PROPAGATOR.extract(carrier, Context())


def _of_decision(decision: Decision) -> dict[str, str | int]:
    address = urlsplit(decision.worker.url)
    attributes: dict[str, str | int] = {
        "server.address": address.hostname or "",
        "kv_gateway.worker": decision.worker.url,
        "kv_gateway.rank": decision.rank,
        "kv_gateway.why": decision.why,
        "kv_gateway.prompt_tokens": decision.prompt_tokens,
        "kv_gateway.hit_tokens": decision.hit_tokens,
        "kv_gateway.best_hit_tokens": decision.best_hit_tokens,
        "kv_gateway.ids": decision.no_ids or "forwarded",
        "gen_ai.provider.name": decision.worker.engine or "unknown",
    }
    if address.port is not None:
        attributes["server.port"] = address.port
    return attributes


def _of_usage(usage: Usage) -> dict[str, int]:
    attributes = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    return attributes


def _of_request(record: RequestRecord, operation: str | None) -> dict[str, str | bool]:
    attributes: dict[str, str | bool] = {}
    if operation is not None:
        attributes["gen_ai.operation.name"] = operation
        attributes["gen_ai.request.stream"] = record.stream
    if record.model is not None:
        attributes["gen_ai.request.model"] = record.model
    return attributes


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))
