"""Where requests go, and how much waits there."""

from deploy import recordings as recorded
from deploy.record import Dashboard, Line, Panel, now, or_zero, percentile, shown

ROUTING = Dashboard(
    uid="kv-gateway-routing",
    title="kv-gateway: routing",
    meaning="Where requests go, and how much waits there.",
    panels=(
        Panel(
            title="Workers by state",
            meaning="By the gateway that sees most of them in it.",
            lines=(
                Line(
                    f"max by (state) (sum without (worker) ({now('worker_state')}))",
                    "{{state}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Prefill waiting at each worker",
            meaning=recorded.PREFILL_WAIT.meaning + ".",
            lines=(Line(recorded.PREFILL_WAIT.shown(), "{{worker}}"),),
            unit="s",
        ),
        Panel(
            title="Requests in flight",
            meaning="Of all gateways.",
            lines=(
                Line(
                    f"sum by (worker) ({now('inflight_requests')})",
                    "{{worker}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Running and waiting, as workers say",
            meaning="Requests of all their clients, seen by the gateway with the most.",
            lines=(
                Line(
                    f"max by (worker, rank) ({now('reported_running_requests')})",
                    "{{worker}} {{rank}} running",
                ),
                Line(
                    f"max by (worker, rank) ({now('reported_waiting_requests')})",
                    "{{worker}} {{rank}} waiting",
                ),
            ),
        ),
        Panel(
            title="KV cache in use, as workers say",
            meaning="By requests in progress; above 95 % a worker gets nothing new.",
            lines=(
                Line(
                    f"max by (worker, rank) ({now('reported_kv_usage_ratio')})",
                    "{{worker}} {{rank}}",
                ),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Prompt tokens of others that wait",
            meaning="At each worker, beside what the gateway sent: another gateway's.",
            lines=(
                Line(
                    f"max by (worker, rank) ({now('others_waiting_tokens')})",
                    "{{worker}} {{rank}}",
                ),
            ),
        ),
        Panel(
            title="Prompt tokens by worker",
            meaning="Per second, of requests answered whole.",
            lines=(Line(shown("prompt_tokens_total", "worker"), "{{worker}}"),),
            stacked=True,
        ),
        Panel(
            title="First token by worker, 95 %",
            meaning=recorded.FIRST_TOKEN_BY_WORKER.meaning + ".",
            lines=(Line(recorded.FIRST_TOKEN_BY_WORKER.shown(), "{{worker}}"),),
            unit="s",
        ),
        Panel(
            title="Prefill rate",
            meaning="Prompt tokens per second of each worker, learnt or given.",
            lines=(
                Line(
                    f"max by (worker) ({now('prefill_tokens_per_second')})",
                    "{{worker}}",
                ),
            ),
        ),
        Panel(
            title="Time of a decision",
            meaning="Matching included.",
            lines=(
                Line(percentile(50, "decide_seconds"), "50 %"),
                Line(percentile(99, "decide_seconds"), "99 %"),
            ),
            unit="s",
        ),
        Panel(
            title="Time of matching",
            meaning="Finding held prefixes in the index.",
            lines=(
                Line(percentile(50, "match_seconds"), "50 %"),
                Line(percentile(99, "match_seconds"), "99 %"),
            ),
            unit="s",
        ),
        Panel(
            title="What came of requests sent to a worker",
            meaning="Per second, by outcome; busy is a worker's 429 or 503.",
            lines=(
                Line(
                    or_zero(shown("attempts_total", "worker, outcome")),
                    "{{worker}} {{outcome}}",
                ),
            ),
            unit="reqps",
        ),
        Panel(
            title="Workers that came back",
            meaning="Times per second that one was used again after it had failed.",
            lines=(Line(shown("worker_returns_total", "worker"), "{{worker}}"),),
        ),
        Panel(
            title="Health checks",
            meaning="Per second, by result.",
            lines=(
                Line(or_zero(shown("health_checks_total", "result")), "{{result}}"),
            ),
        ),
        Panel(
            title="Sent a second time",
            meaning="Per second: no connection, a stale one, one busy, or elsewhere.",
            lines=(Line(or_zero(shown("retries_total", "reason")), "{{reason}}"),),
            unit="reqps",
        ),
    ),
)
