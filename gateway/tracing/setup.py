"""Whether requests are traced, and where to: decided by an option or the environment.

OpenTelemetry comes with the extra `otel` and is imported here, only when it is needed.
"""

import logging
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gateway.errors import ConfigError
from gateway.metrics.registry import ServerMetrics
from gateway.settings.shared_config import SharedConfig
from gateway.settings.values import TRACES_PATH

if TYPE_CHECKING:  # where nothing is traced, OpenTelemetry is not loaded
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from gateway.tracing.spans import Spans

log = logging.getLogger(__name__)

SERVICE_NAME = "kv-gateway"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
DISABLED = "OTEL_SDK_DISABLED"
EXPORTER = "OTEL_TRACES_EXPORTER"
QUEUE_SIZE = ("OTEL_BSP_MAX_QUEUE_SIZE", 8192)
BATCH_SIZE = ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)
DELAY_MS = ("OTEL_BSP_SCHEDULE_DELAY", 1000)
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
INSTALL = "pip install 'kv-gateway[otel]'"


class Tracing:
    """Traces of one server, from `start` to `close`; nothing at all where it is off."""

    def __init__(
        self,
        config: SharedConfig,
        metrics: ServerMetrics,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Decide; ConfigError where `--otlp-endpoint` is set and cannot be done."""
        self.endpoint = _endpoint(config, environment)
        self._metrics = metrics
        self._environment = environment
        self._provider: TracerProvider | None = None

    def start(self) -> "Spans | None":
        """Begin to export; what opens the spans of requests, None where it is off."""
        if self.endpoint is None:
            return None
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace import TracerProvider

        from gateway.tracing.export import SpanQueue
        from gateway.tracing.spans import Spans

        queue = SpanQueue(
            OTLPSpanExporter(self.endpoint),
            self.endpoint,
            capacity=self._number(*QUEUE_SIZE),
            batch=self._number(*BATCH_SIZE),
            delay_s=self._number(*DELAY_MS) / 1000,
            exported=self._metrics.spans_exported.inc,
            dropped=self._metrics.spans_dropped.inc,
        )
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(queue)
        self._provider = provider
        log.info("requests are traced to %s", self.endpoint)
        return Spans(provider.get_tracer("kv-gateway"))

    def close(self) -> None:
        """Export what waits, for a few seconds at most. Blocks."""
        if self._provider is not None:
            self._provider.shutdown()
            self._provider = None

    def _number(self, name: str, default: int) -> int:
        text = self._environment.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or not 0 < int(text) < 10**9:
            log.warning("%s is no number above zero: %d it is", name, default)
            return default
        return int(text)


def _resource() -> "Resource":
    """What the environment says of this service, or its own name."""
    from opentelemetry.sdk.resources import Resource

    told = Resource.create()
    if str(told.attributes.get("service.name", "")).startswith("unknown_service"):
        return told.merge(Resource({"service.name": SERVICE_NAME}))
    return told


def _endpoint(config: SharedConfig, environment: Mapping[str, str]) -> str | None:
    """Where spans go, None where nothing is traced; ConfigError."""
    if environment.get(DISABLED, "").strip().lower() == "true":
        return None
    if config.otlp_endpoint is not None:
        problem = _problem(environment)
        if problem is not None:
            raise ConfigError(f"--otlp-endpoint: {problem}")
        return config.otlp_endpoint
    endpoint = _from_environment(environment)
    if endpoint is not None:
        problem = _problem(environment)
        if problem is not None:  # it was not asked of us in particular
            log.warning("%s is set, but nothing is traced: %s", ENDPOINT, problem)
            return None
    return endpoint


def _from_environment(environment: Mapping[str, str]) -> str | None:
    if environment.get(EXPORTER, "otlp").strip().lower() not in ("otlp", ""):
        return None
    traces = environment.get(TRACES_ENDPOINT, "").strip()
    if traces:
        return traces
    base = environment.get(ENDPOINT, "").strip()
    return base.rstrip("/") + TRACES_PATH if base else None


def _problem(environment: Mapping[str, str]) -> str | None:
    """Why spans cannot be exported, if so."""
    protocols = [environment.get(name, "").strip() for name in PROTOCOLS]
    protocol = next((said for said in protocols if said), PROTOCOL)
    if protocol != PROTOCOL:
        return f"the protocol {protocol} is not spoken here, only {PROTOCOL}"
    try:
        missing = [name for name in NEEDED if find_spec(name) is None]
    except ModuleNotFoundError:
        missing = list(NEEDED)
    return f"OpenTelemetry is not installed: {INSTALL}" if missing else None
