"""Does the gateway help, and what is still lost?"""

from deploy import recordings as recorded
from deploy.record import Dashboard, Line, Panel, or_zero, shown

GOOD = ((None, "red"), (0.3, "yellow"), (0.5, "green"))


def _fate(fates: str) -> str:
    selector = f'fate=~"{fates}"'
    return f"sum({recorded.FATES.shown(selector)})"


EFFICIENCY = Dashboard(
    uid="kv-gateway-efficiency",
    title="kv-gateway: fleet cache efficiency",
    meaning="Does the gateway help, and what is still lost?",
    panels=(
        Panel(
            title="Prompt tokens the fleet did not prefill, and need not have",
            meaning="Per second. Green was found in a cache. Red was computed anew "
            "though a worker held it, or was thought to; orange could not be asked "
            "for, being routed without token ids. Grey was new to all.",
            lines=(
                Line(_fate("found|not_indexed"), "not prefilled: found cached"),
                Line(_fate("elsewhere"), "need not have been: held by another worker"),
                Line(_fate("gone"), "need not have been: gone from its worker"),
                Line(_fate("not_rendered"), "perhaps: routed without token ids"),
                Line(_fate("new"), "had to be: new"),
            ),
            stacked=True,
            width=16,
            height=10,
            colours={
                "not prefilled: found cached": "green",
                "need not have been: held by another worker": "red",
                "need not have been: gone from its worker": "dark-red",
                "perhaps: routed without token ids": "orange",
                "had to be: new": "#8e8e8e",
            },
        ),
        Panel(
            title="Hit rate",
            meaning="Share of the prompt tokens that workers found in their caches.",
            lines=(Line(recorded.DELIVERED.shown()),),
            kind="stat",
            unit="percentunit",
            width=4,
            height=5,
            steps=GOOD,
        ),
        Panel(
            title="Best possible",
            meaning="Had each request gone to the worker that held most of it.",
            lines=(Line(recorded.BEST.shown()),),
            kind="stat",
            unit="percentunit",
            width=4,
            height=5,
        ),
        Panel(
            title="Prefill saved, in workers",
            meaning=recorded.WORKERS_SAVED.meaning + ".",
            lines=(Line(recorded.WORKERS_SAVED.shown()),),
            kind="stat",
            width=4,
            height=5,
        ),
        Panel(
            title="First token, 95 %",
            meaning=recorded.FIRST_TOKEN_P95.meaning.replace("95 %", "95 of 100") + ".",
            lines=(Line(recorded.FIRST_TOKEN_P95.shown()),),
            kind="stat",
            unit="s",
            width=4,
            height=5,
        ),
        Panel(
            title="Hit rate: delivered, predicted, best possible",
            meaning="Best less predicted is lost to load balancing; predicted less "
            "delivered to a wrong index.",
            lines=(
                Line(recorded.DELIVERED.shown(), "delivered"),
                Line(recorded.PREDICTED.shown(), "predicted"),
                Line(recorded.BEST.shown(), "best possible"),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Hit rate by worker",
            meaning="As the workers report it.",
            lines=(Line(recorded.DELIVERED_BY_WORKER.shown(), "{{worker}}"),),
            unit="percentunit",
        ),
        Panel(
            title="Time to first token",
            meaning="Of streamed answers, from the request to the first event.",
            lines=(
                Line(recorded.FIRST_TOKEN_P50.shown(), "50 %"),
                Line(recorded.FIRST_TOKEN_P95.shown(), "95 %"),
                Line(recorded.FIRST_TOKEN_P99.shown(), "99 %"),
            ),
            unit="s",
        ),
        Panel(
            title="Predicted and delivered apart",
            meaning=recorded.DISAGREEMENT.meaning + ".",
            lines=(Line(recorded.DISAGREEMENT.shown(), "{{worker}}"),),
            unit="percentunit",
        ),
        Panel(
            title="Predicted hit rate by worker, and best possible",
            meaning="Of the requests that went to it.",
            lines=(
                Line(recorded.PREDICTED_BY_WORKER.shown(), "{{worker}} predicted"),
                Line(recorded.BEST_BY_WORKER.shown(), "{{worker}} best"),
            ),
            unit="percentunit",
        ),
        Panel(
            title="Requests that hit rates leave out",
            meaning="Per second, and why: mostly workers that do not report.",
            lines=(
                Line(
                    or_zero(shown("uncompared_requests_total", "worker, reason")),
                    "{{worker}} {{reason}}",
                ),
            ),
            unit="reqps",
        ),
    ),
)
