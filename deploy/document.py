"""The generated parts of docs/operating.md: metrics, where they are shown, alerts."""

import re
from collections.abc import Iterable, Iterator

from deploy.alerts import ALERTS
from deploy.boards import DASHBOARDS
from deploy.record import Alert
from deploy.recordings import RECORDINGS

_RECORDED = {recording.name: recording.expr for recording in RECORDINGS}


def metrics(meanings: Iterable[tuple[str, str]]) -> str:
    """Each metric, what it means, and which panels and alerts are made of it.

    `meanings` has names as they are on the metrics page, of a histogram its base name.
    """
    rows = ["| metric | means | shown on | alerts |", "|---|---|---|---|"]
    for name, meaning in meanings:
        shown, alerts = ", ".join(panels_of(name)), ", ".join(alerts_of(name))
        rows.append(f"| `{name}` | {meaning} | {shown} | {alerts} |")
    return "\n".join(rows) + "\n"


def panels_of(metric: str) -> list[str]:
    """The panels that show a metric, by their dashboards."""
    return [
        f"*{dashboard.short}*: {panel.title}"
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        if any(_is_in(metric, line.expr) for line in panel.lines)
    ]


def alerts_of(metric: str) -> list[str]:
    """Links to the alerts that a metric makes fire."""
    found = [alert for alert in ALERTS if _is_in(metric, alert.expr)]
    return [f"[{alert.name}](#{alert.anchor})" for alert in found]


def _is_in(metric: str, expr: str) -> bool:
    """Whether an expression, or a recording in it, reads a metric."""
    whole = expr + "".join(e for name, e in _RECORDED.items() if name in expr)
    return bool(re.search(rf"(?<![\w:]){metric}(_bucket|_sum|_count)?(?![\w:])", whole))


def recordings() -> str:
    """The recording rules and what they mean."""
    rows = ["| recorded | means |", "|---|---|"]
    rows += [f"| `{one.name}` | {one.meaning} |" for one in RECORDINGS]
    return "\n".join(rows) + "\n"


def dashboards() -> str:
    """The dashboards, what each answers, and its panels."""
    rows = ["| dashboard | answers | panels |", "|---|---|---|"]
    for board in DASHBOARDS:
        titles = "; ".join(panel.title for panel in board.panels)
        rows.append(f"| `{board.uid}.json` | {board.meaning} | {titles} |")
    return "\n".join(rows) + "\n"


def alerts() -> str:
    """A paragraph for each alert: what it means, what to do."""
    return "\n".join(line for alert in ALERTS for line in _alert(alert))


def _alert(alert: Alert) -> Iterator[str]:
    yield f"### {alert.name}"
    yield ""
    held = "at once" if alert.lasts == "0m" else f"after {_long(alert.lasts)}"
    yield f"{alert.severity}, {held}. {alert.meaning}"
    yield ""
    for number, step in enumerate(alert.remedy, 1):
        yield f"{number}. {step}"
    yield ""


def _long(duration: str) -> str:
    minutes = int(duration.removesuffix("m"))
    return "a minute" if minutes == 1 else f"{minutes} minutes"
