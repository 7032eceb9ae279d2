"""Do requests get their answers, and has the gateway time for them?"""

from deploy import recordings as recorded
from deploy.record import Dashboard, Line, Panel, now, or_zero, percentile, shown

HEALTH = Dashboard(
    uid="kv-gateway-health",
    title="kv-gateway: proxy health",
    meaning="Do requests get their answers, and has the gateway time for them?",
    panels=(
        Panel(
            title="Requests",
            meaning="Per second, by status.",
            lines=(Line(shown("requests_total", "status"), "{{status}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Failed requests",
            meaning=recorded.ERRORS.meaning + ".",
            lines=(Line(recorded.ERRORS.shown(), "failed"),),
            unit="percentunit",
            steps=((None, "green"), (0.05, "red")),
        ),
        Panel(
            title="Time of a request, 95 %",
            meaning="To the end of its answer, by endpoint.",
            lines=(
                Line(percentile(95, "request_seconds", "endpoint"), "{{endpoint}}"),
            ),
            unit="s",
        ),
        Panel(
            title="Event-loop lag, 99 %",
            meaning=recorded.LAG.meaning + ".",
            lines=(Line(recorded.LAG.shown(), "{{instance}}"),),
            unit="s",
            steps=((None, "green"), (0.05, "red")),
        ),
        Panel(
            title="Failures of workers",
            meaning="Exchanges per second that a worker did not finish.",
            lines=(
                Line(
                    or_zero(shown("upstream_failures_total", "worker, kind")),
                    "{{worker}} {{kind}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Refused",
            meaning="Requests per second that were too many, by the limit they met.",
            lines=(Line(or_zero(shown("refused_total", "reason")), "{{reason}}"),),
            unit="reqps",
        ),
        Panel(
            title="Clients",
            meaning="Requests per second by the key's name: taken, or over a limit.",
            lines=(
                Line(
                    or_zero(shown("client_requests_total", "client, outcome")),
                    "{{client}} {{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Keys that do not fit",
            meaning="Requests per second without a key, or with a wrong one.",
            lines=(Line(or_zero(shown("refused_keys_total", "reason")), "{{reason}}"),),
            unit="reqps",
        ),
        Panel(
            title="Rank headers dropped",
            meaning="Clients per second that asked for a rank without --client-rank.",
            lines=(
                Line(shown("client_ranks_dropped_total", "instance"), "{{instance}}"),
            ),
            unit="reqps",
        ),
        Panel(
            title="Clients that left",
            meaning="Per second, before their answer ended.",
            lines=(
                Line(shown("client_disconnects_total", "instance"), "{{instance}}"),
            ),
            unit="reqps",
        ),
        Panel(
            title="Processes started anew",
            meaning="Per second, of gateways with several; one of them had ended.",
            lines=(
                Line(
                    or_zero(shown("process_restarts_total", "instance, process")),
                    "{{instance}} process {{process}}",
                ),
            ),
        ),
        Panel(
            title="Index",
            meaning=recorded.INDEX_FILL.meaning + ".",
            lines=(Line(recorded.INDEX_FILL.shown(), "{{instance}}"),),
            unit="percentunit",
            steps=((None, "green"), (0.95, "red")),
        ),
        Panel(
            title="Blocks indexed, and refused",
            meaning="Refused per second, at the bound.",
            lines=(
                Line(f"max by (instance) ({now('index_blocks')})", "{{instance}}"),
                Line(
                    shown("index_refused_blocks_total", "instance"),
                    "{{instance}} refused",
                ),
            ),
        ),
        Panel(
            title="Spans",
            meaning="Per second, exported to the collector or dropped; none untraced.",
            lines=(
                Line(shown("spans_exported_total", "instance"), "{{instance}}"),
                Line(
                    shown("spans_dropped_total", "instance"),
                    "{{instance}} dropped",
                ),
            ),
        ),
        Panel(
            title="Workers by source",
            meaning="How many each source names: options, files, the API, discovery.",
            lines=(Line(f"max by (source) ({now('named_workers')})", "{{source}}"),),
        ),
        Panel(
            title="Discovery",
            meaning="Seconds since a source last told who the workers are.",
            lines=(
                Line(
                    "time() - min by (instance, source) "
                    f"({now('discovery_success_timestamp_seconds')})",
                    "{{source}} {{instance}}",
                ),
            ),
            unit="s",
            steps=((None, "green"), (300, "red")),
        ),
        Panel(
            title="Discovery failures",
            meaning="Per second, by source and reason; the workers stay as they are.",
            lines=(
                Line(
                    shown("discovery_failures_total", "source, reason"),
                    "{{source}} {{reason}}",
                ),
            ),
        ),
        Panel(
            title="Faults of the gateway",
            meaning="Per second, by where; each has its trace in the log.",
            lines=(
                Line(or_zero(shown("internal_errors_total", "where")), "{{where}}"),
            ),
        ),
    ),
)
