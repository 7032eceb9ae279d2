"""The words a description is written in: recordings, alerts, panels, dashboards.

Records only; `rules.py` and `dashboards.py` make files of them.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

PREFIX = "kv_gateway_"
JOB = 'job=~"$job"'
"""The selector of the gateways that a dashboard shows."""

Severity = Literal["critical", "warning", "info"]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording rule: its name by Prometheus' convention, level:metric:operations."""

    name: str
    expr: str
    meaning: str

    def shown(self, selector: str = "") -> str:
        """Its value in a panel."""
        return f"{self.name}{{{', '.join(filter(None, (JOB, selector)))}}}"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: `lasts` is how long `expr` must hold; `remedy` is what to do, in order.

    `summary` may name labels as `{{ $labels.worker }}`.
    """

    name: str
    expr: str
    lasts: str
    severity: Severity
    summary: str
    meaning: str
    remedy: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Where its paragraph stands in docs/operating.md."""
        return self.name.lower()


class Line(msgspec.Struct, frozen=True):
    """One expression of a panel, and how its series are called."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel. `unit` is Grafana's; `steps` are thresholds, ascending, by colour."""

    title: str
    meaning: str
    lines: tuple[Line, ...]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    colours: Mapping[str, str] = {}
    steps: tuple[tuple[float | None, str], ...] = ()


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """One dashboard; panels flow from left to right, 24 columns wide."""

    uid: str
    title: str
    meaning: str
    panels: tuple[Panel, ...]

    @property
    def short(self) -> str:
        """Its title without the product's name."""
        return self.title.removeprefix("kv-gateway: ")


def total(metric: str, by: str, *selectors: str, window: str = "5m") -> str:
    """The growth of a counter per second, summed to the labels `by`."""
    chosen = f"{{{', '.join(selectors)}}}" if selectors else ""
    return f"sum by ({by}) (rate({PREFIX}{metric}{chosen}[{window}]))"


def share(part: str, whole: str, by: str, *selectors: str) -> str:
    """One counter's growth over another's."""
    return f"{total(part, by, *selectors)} / {total(whole, by)}"


def quantile(q: float, metric: str, by: str) -> str:
    """A quantile of a histogram over five minutes."""
    return f"histogram_quantile({q}, {total(metric + '_bucket', by + ', le')})"


def shown(metric: str, by: str, *selectors: str) -> str:
    """A counter's growth per second in a panel."""
    return total(metric, by, JOB, *selectors, window="$__rate_interval")


def or_zero(expr: str) -> str:
    """What is counted only where it happens: 0 where it never did."""
    return f"{expr} or on () vector(0)"


def now(metric: str, *selectors: str) -> str:
    """A gauge in a panel."""
    return f"{PREFIX}{metric}{{{', '.join((JOB, *selectors))}}}"


def percentile(percent: int, metric: str, *by: str) -> str:
    """A quantile of a histogram in a panel, over the time a point stands for."""
    buckets = shown(metric + "_bucket", ", ".join((*by, "le")))
    return f"histogram_quantile({percent / 100:g}, {buckets})"
