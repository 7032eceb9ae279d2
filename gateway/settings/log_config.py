"""The options of what both servers tell of themselves: logs and traces."""

from typing import Annotated, Literal

from gateway.settings.options import option
from gateway.settings.tls_config import TlsConfig
from gateway.settings.values import traces_endpoint


class LogConfig(TlsConfig, frozen=True, kw_only=True):
    """What is logged, how, and where spans go."""

    log_format: Annotated[
        Literal["text", "json"], option("how log lines look; one for each change")
    ] = "text"
    access_log: Annotated[
        bool,
        option(
            "one more line for each request: where it went and why, its tokens and "
            "times; never text of a prompt"
        ),
    ] = False
    log_prompts: Annotated[
        bool,
        option("log the body of each request, and errors that may quote one"),
    ] = False
    otlp_endpoint: Annotated[
        str | None,
        option(
            "OpenTelemetry collector that spans of requests go to, by HTTP; needs the "
            "extra otel",
            metavar="URL",
            parse=traces_endpoint,
            shown_default="OTEL_EXPORTER_OTLP_ENDPOINT, else none",
        ),
    ] = None
