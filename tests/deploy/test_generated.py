"""The generated files of `deploy/` are those of today, and fit the gateway."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from deploy.__main__ import HERE, files
from deploy.alerts import ALERTS
from deploy.boards import DASHBOARDS
from deploy.dashboards import to_json
from deploy.document import panels_of
from deploy.record import PREFIX, Dashboard
from deploy.recordings import RECORDINGS
from deploy.rule_tests import TESTS
from gateway.metrics.comparison import FATES
from gateway.settings.config import Config
from gateway.settings.options import options_of
from tests.documents import metric_labels

SUFFIXES = ("", "_total", "_bucket", "_count", "_sum")
SAMPLE = re.compile(r"(?<![\w:])kv_gateway_\w+(?![\w:])(?:\{([^}]*)\})?")
ANYWHERE = {"job", "instance", "le"}
"""Labels that Prometheus adds."""


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and the expression: of rules, alerts and panels."""
    for recording in RECORDINGS:
        yield recording.name, recording.expr
    for alert in ALERTS:
        yield alert.name, alert.expr
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for line in panel.lines:
                yield f"{dashboard.uid}: {panel.title}", line.expr


def samples() -> Mapping[str, frozenset[str]]:
    """What a gateway's metrics page can have, and the labels there."""
    return {
        metric + suffix: frozenset(labels)
        for metric, labels in metric_labels().items()
        for suffix in SUFFIXES
    }


@pytest.mark.parametrize(
    ("path", "text"), list(files()), ids=[path.name for path, _ in files()]
)
def test_nothing_would_change(path: Path, text: str) -> None:
    """`python -m deploy` was run after the last change."""
    assert path.read_text() == text


def test_no_file_is_left_over() -> None:
    """A dashboard that is no longer described is no longer there."""
    made = {path for path, _ in files()}
    there = {*HERE.glob("grafana/kv-gateway-*.json"), *HERE.glob("prometheus/rules*")}
    assert there == made


def test_every_metric_and_label_exists() -> None:
    """Rules and panels read only what a gateway tells, by labels it has there."""
    known = samples()
    for place, expr in expressions():
        for found in SAMPLE.finditer(expr):
            name = found[0].partition("{")[0]
            assert name in known, place
            selected = set(re.findall(r"(\w+)\s*[=!]~?", found[1] or ""))
            assert selected <= known[name] | ANYWHERE, (place, name)


def test_every_metric_is_shown() -> None:
    """On some panel; what means nothing to anybody need not be counted."""
    written = {
        f"{name}{suffix}" for name in metric_labels() for suffix in ("", "_total")
    }
    shown = {name for name in written if panels_of(name)}
    assert {name.removesuffix("_total") for name in shown} == set(metric_labels())


def test_sums_are_by_labels_that_exist() -> None:
    """What a sum is made by is a label of what is summed."""
    known = samples()
    pattern = r"by \(([^)]*)\) \((?:rate\(|increase\()?(kv_gateway_\w+)(?![\w:])"
    seen = 0
    for place, expr in expressions():
        for labels, name in re.findall(pattern, expr):
            seen += 1
            assert set(labels.split(", ")) <= known[name] | ANYWHERE, (place, name)
    assert seen > 50


def test_every_recording_that_is_read_is_made() -> None:
    """A name with colons is that of a recording rule."""
    made = {recording.name for recording in RECORDINGS}
    assert len(made) == len(RECORDINGS)
    for place, expr in expressions():
        assert set(re.findall(r"\w+:\w+:\w+", expr)) <= made, place


def test_every_recording_is_read() -> None:
    """Nothing is recorded in vain."""
    read = " ".join(expr for _, expr in expressions())
    for recording in RECORDINGS:
        assert recording.name in read
        assert recording.name.partition(":")[2].startswith(PREFIX)


def test_every_alert_has_its_tests() -> None:
    """One that fires and one that does not; each alert has steps to take."""
    assert list(TESTS) == [alert.name for alert in ALERTS]
    assert all(alert.remedy for alert in ALERTS)


def test_remedies_name_options_that_exist() -> None:
    """Each `--flag` is one of the gateway's, or an engine's that says so."""
    flags = {"--" + option.name.replace("_", "-") for option in options_of(Config)}
    engines = {"--enable-prompt-tokens-details"}
    for alert in ALERTS:
        named = set(re.findall(r"--[a-z-]+", " ".join(alert.remedy)))
        assert named <= flags | engines, alert.name


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.uid)
def test_panels_do_not_overlap(dashboard: Dashboard) -> None:
    """Each has its place within 24 columns, an id, a title and a description."""
    panels = json.loads(to_json(dashboard))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    cells = []
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        columns, rows = (
            range(at["x"], at["x"] + at["w"]),
            range(at["y"], at["y"] + at["h"]),
        )
        cells.append({(x, y) for x in columns for y in rows})
    assert not any(one & other for one, other in combinations(cells, 2))


def test_the_first_panel_tells_what_was_not_prefilled() -> None:
    """And what need not have been; the fates it shows are all there are."""
    first = DASHBOARDS[0].panels[0]
    assert "did not prefill" in first.title
    assert "need not have" in first.title
    shown = re.findall(r'fate=~"([^"]+)"', " ".join(line.expr for line in first.lines))
    assert sorted("|".join(shown).split("|")) == sorted(FATES)
