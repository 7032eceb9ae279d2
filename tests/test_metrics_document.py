"""docs/metrics.md names every metric there is, with its labels and what it means."""

import re
from collections.abc import Iterator
from pathlib import Path

import prometheus_client.metrics
from prometheus_client.metrics_core import Metric

from gateway import describe, rendering
from gateway.gauges import Gauges
from gateway.metrics import Labelled, Metrics
from kvindex.index import Indexes
from render import REASONS
from router.pool import WorkerPool
from router.worker import WorkerSpec

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
Row = tuple[str, str, str, str]


def row(metric: Metric, labels: tuple[str, ...]) -> Row:
    """Name as on the page, kind, labels, meaning."""
    name = metric.name + ("_total" if metric.type == "counter" else "")
    return name, metric.type, ", ".join(labels), metric.documentation


def rows_of_the_registry() -> Iterator[Row]:
    """What the gateway writes, and what it reads at each scrape."""
    metrics = Metrics()
    for value in vars(metrics).values():
        written = value._metric if isinstance(value, Labelled) else value
        if isinstance(written, prometheus_client.metrics.MetricWrapperBase):
            (metric,) = written.collect()
            yield row(metric, tuple(written._labelnames))
    pool = WorkerPool(clock=lambda: 0.0)
    pool.add(WorkerSpec(url="http://w1:8000"))
    for family in Gauges(pool, Indexes(limit_bytes=1)).read():
        labels: tuple[str, ...] = getattr(family, "_labelnames", ())
        yield row(family, labels)


def rows_of_the_document() -> list[Row]:
    """The rows of its table."""
    pattern = r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\| (.+) \|$"
    found: list[Row] = re.findall(pattern, PAGE.read_text(), re.MULTILINE)
    return found


def test_every_metric_is_in_the_table() -> None:
    """Name, kind, labels and meaning are those of the registry."""
    documented = rows_of_the_document()
    assert sorted(documented) == sorted(rows_of_the_registry())
    assert len({name for name, *_ in documented}) == len(documented) > 30


def test_every_reason_is_named() -> None:
    """Why requests are not rendered: all the words that code can say."""
    ours = {
        value
        for module in (describe, rendering)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    problems = {"empty", "not_json", "not_object", "too_deep", "too_complex"}
    named = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert (ours | problems | set(REASONS)) <= named
