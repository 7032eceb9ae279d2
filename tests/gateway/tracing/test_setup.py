"""Whether requests are traced: by an option, by the standard variables, or not."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from gateway.errors import ConfigError
from gateway.metrics.registry import ServerMetrics
from gateway.settings.shared_config import SharedConfig
from gateway.tracing import setup
from gateway.tracing.setup import Tracing
from tests.gateway.command import refused

OPTION = "http://option:4318/v1/traces"


def _endpoint(environment: Mapping[str, str], option: str | None = None) -> str | None:
    config = SharedConfig(otlp_endpoint=option)
    return Tracing(config, ServerMetrics(), environment).endpoint


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"},
            "http://c:4318/v1/traces",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/otlp/"},
            "http://c:4318/otlp/v1/traces",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1/spans",
            },
            "http://t:1/spans",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
                "OTEL_TRACES_EXPORTER": "none",
            },
            None,
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            },
            None,
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
                "OTEL_SDK_DISABLED": "true",
            },
            None,
        ),
    ],
)
def test_the_environment(environment: Mapping[str, str], expected: str | None) -> None:
    """The variables that OpenTelemetry names, by its rules."""
    assert _endpoint(environment) == expected


def test_the_option_wins() -> None:
    """It is where spans go, whatever the environment says; but off is off."""
    other = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    assert _endpoint(other, OPTION) == OPTION
    assert _endpoint({"OTEL_SDK_DISABLED": "TRUE"}, OPTION) is None


def test_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The option is an error then, with the command; variables are a warning."""
    monkeypatch.setattr(setup, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'kv-gateway\[otel\]'"):
        _endpoint({}, OPTION)
    assert _endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}) is None
    assert "nothing is traced" in caplog.text


def test_a_bad_number(caplog: pytest.LogCaptureFixture) -> None:
    """A size that is none is told, and the usual one taken."""
    environment = {"OTEL_BSP_MAX_QUEUE_SIZE": "many"}
    tracing = Tracing(SharedConfig(), ServerMetrics(), environment)
    assert tracing._number(*setup.QUEUE_SIZE) == 8192
    assert "OTEL_BSP_MAX_QUEUE_SIZE is no number above zero" in caplog.text


@pytest.mark.parametrize("text", ["collector:4318", "http://", "grpc://c:4317"])
def test_no_endpoint(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """It is a URL, or a mistake in one line."""
    line = refused(capsys, "--workers", "w1", "--otlp-endpoint", text)
    assert "is no URL such as http://collector:4318" in line


def test_nothing_is_loaded_where_it_is_off() -> None:
    """A gateway without traces imports nothing of OpenTelemetry."""
    program = (
        "import sys; import gateway.app, gateway.endpoints.render_server;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
