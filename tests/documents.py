"""The generated parts of the documents; `python -m tests.documents` writes them.

Each stands between two marks and is made from what it speaks of: the option table from
the configuration, the metrics from their registry, the files from their docstrings.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from deploy import document as operating
from gateway.metrics.encoder_counters import encoder_counters
from gateway.metrics.gauges import Gauges
from gateway.metrics.registry import Labelled, Metrics
from gateway.metrics.source_metrics import source_metrics
from gateway.processes.process_metrics import process_metrics
from gateway.settings.access_config import AccessConfig
from gateway.settings.config import Config
from gateway.settings.discovery_config import DiscoveryConfig
from gateway.settings.log_config import LogConfig
from gateway.settings.options import markdown_table, options_of
from gateway.settings.process_config import ProcessConfig
from gateway.settings.proxy_config import ProxyConfig
from gateway.settings.render_config import RenderConfig
from gateway.settings.shared_config import SharedConfig
from gateway.settings.tls_config import TlsConfig
from kvindex.index import Indexes
from router.forwarding import Forwarding
from router.pool import WorkerPool
from router.worker import WorkerSpec

ROOT = Path(__file__).parent.parent
ROOMS = ("gateway", "router", "render", "kvindex", "simworker")


def options_of_serve() -> str:
    """The front door's own options."""
    return _own(Config, ProcessConfig, DiscoveryConfig, ProxyConfig, AccessConfig)


def options_of_render() -> str:
    """The render server's own options."""
    return _own(RenderConfig)


def options_of_both() -> str:
    """The options that the two have in common."""
    return _own(SharedConfig, LogConfig, TlsConfig)


def _own(config: type[SharedConfig], *also: type[msgspec.Struct]) -> str:
    """The table of the options that are declared by these very classes."""
    own = {name for one in (config, *also) for name in vars(one)["__annotations__"]}
    return markdown_table(o for o in options_of(config) if o.name in own)


def metrics() -> str:
    """Every metric: what the gateway writes, and what it reads at each scrape."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric, labels in _metrics():
        cells = (
            f"`{_full(metric)}`",
            metric.type,
            ", ".join(labels),
            metric.documentation,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _full(metric: Metric) -> str:
    """Its name on the metrics page; of a histogram without what it adds."""
    return metric.name + ("_total" if metric.type == "counter" else "")


def metrics_shown() -> str:
    """Every metric, what it means, and what shows it."""
    return operating.metrics((_full(m), m.documentation) for m, _ in _metrics())


def metric_labels() -> dict[str, tuple[str, ...]]:
    """The labels of each metric, by its name without what its kind adds to it."""
    return {metric.name: labels for metric, labels in _metrics()}


def _metrics() -> Iterator[tuple[Metric, tuple[str, ...]]]:
    """Each metric and its labels."""
    for value in vars(Metrics()).values():
        written = value._metric if isinstance(value, Labelled) else value
        if isinstance(written, MetricWrapperBase):
            (metric,) = written.collect()
            yield metric, tuple(written._labelnames)
    pool = WorkerPool(clock=lambda: 0.0)
    pool.add(WorkerSpec(url="http://w1:8000"))
    gauges = Gauges(pool, Indexes(limit_bytes=1), Forwarding(pool))
    others = (
        *encoder_counters(tuple)(),
        *source_metrics({}, ()),
        *process_metrics(())(),
    )
    for family in (*gauges.read(), *others):
        yield family, getattr(family, "_labelnames", ())


def files() -> str:
    """Every file of every room, by the first line of its docstring."""
    rows = []
    for room in ROOMS:
        rows += ["", f"### {room}", "", "| file | what it is |", "|---|---|"]
        for path in sorted((ROOT / room).rglob("*.py")):
            if not path.name.startswith("__"):
                said = ast.get_docstring(ast.parse(path.read_text())) or ""
                name = path.relative_to(ROOT / room)
                rows.append(f"| `{name}` | {said.partition(chr(10))[0]} |")
    return "\n".join(rows) + "\n"


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("README.md", "options of serve"): options_of_serve,
    ("README.md", "options of render"): options_of_render,
    ("README.md", "options of both"): options_of_both,
    ("docs/metrics.md", "metrics"): metrics,
    ("docs/operating.md", "metrics"): metrics_shown,
    ("docs/operating.md", "recordings"): operating.recordings,
    ("docs/operating.md", "dashboards"): operating.dashboards,
    ("docs/operating.md", "alerts"): operating.alerts,
    ("docs/architecture.md", "files"): files,
}
"""(document, mark) -> what stands between `<!-- mark -->` and `<!-- /mark -->`."""


def with_part(text: str, mark: str, part: str) -> str:
    """A document's text with this between its marks; without marks as it was."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    written = f"{begin}\n{part}{end}"
    return re.sub(pattern, lambda _: written, text, flags=re.DOTALL)


if __name__ == "__main__":
    for (document, mark), part in PARTS.items():
        path = ROOT / document
        path.write_text(with_part(path.read_text(), mark, part()))
