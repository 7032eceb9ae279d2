"""What rendering costs, and whether ids go along."""

from deploy import recordings as recorded
from deploy.record import Dashboard, Line, Panel, now, or_zero, percentile, shown

RENDERING = Dashboard(
    uid="kv-gateway-rendering",
    title="kv-gateway: rendering and forwarding",
    meaning="What rendering costs, what is not rendered, and whether ids go along.",
    panels=(
        Panel(
            title="Rendering a request",
            meaning="Waiting for a thread included.",
            lines=(
                Line(recorded.RENDER_MEAN.shown(), "mean"),
                Line(recorded.RENDER_P95.shown(), "95 %"),
            ),
            unit="s",
        ),
        Panel(
            title="Template and tokenizer, 95 %",
            meaning="What rendering is made of; the rest is waiting.",
            lines=(
                Line(percentile(95, "template_seconds"), "template"),
                Line(percentile(95, "tokenize_seconds"), "tokenizer"),
            ),
            unit="s",
        ),
        Panel(
            title="Threads busy rendering",
            meaning="Seconds of templates and tokenizing per second.",
            lines=(
                Line(
                    f"{shown('template_seconds_sum', 'instance')} + "
                    f"{shown('tokenize_seconds_sum', 'instance')}",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            title="Routed without token ids",
            meaning="Share of the inference requests, by reason.",
            lines=(Line(or_zero(recorded.NOT_RENDERED.shown()), "{{reason}}"),),
            unit="percentunit",
            stacked=True,
        ),
        Panel(
            title="Ids that went along",
            meaning=recorded.FORWARDED.meaning + ".",
            lines=(Line(recorded.FORWARDED.shown(), "with ids"),),
            unit="percentunit",
        ),
        Panel(
            title="Why ids stayed",
            meaning="Requests per second, by outcome and reason.",
            lines=(
                Line(
                    shown("forwarded_total", "outcome, reason"),
                    "{{outcome}} {{reason}}",
                ),
            ),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Workers that are sent no ids",
            meaning="And why; docs/forwarding.md has what each reason means.",
            lines=(
                Line(
                    or_zero(
                        f"max by (worker, reason) ({now('forwarding_blocked')}) == 1"
                    ),
                    "{{worker}} {{reason}}",
                ),
            ),
            kind="table",
            width=16,
        ),
        Panel(
            title="Encoder checks, and mismatches",
            meaning="Texts per second encoded again by the reference encoder. Any "
            "mismatch is a fault.",
            lines=(
                Line(or_zero(shown("encoder_checks_total", "model")), "{{model}}"),
                Line(
                    or_zero(shown("encoder_mismatches_total", "model")),
                    "{{model}} mismatches",
                ),
            ),
        ),
    ),
)
