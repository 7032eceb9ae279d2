"""The bounds of the chaos benchmark: which hold, and which are said to be broken."""

import msgspec
import pytest

from bench._chaos_report import Report, print_report
from bench._chaos_traffic import Outcome
from bench.streams import cells

WELL = Outcome("chaos-1", 0.0, ended=1.0, status=200, whole=True)
LOST = Outcome("chaos-2", 0.0, ended=1.0, status=504, error="upstream_timeout")
LAG = 'kv_gateway_event_loop_lag_seconds_bucket{le="%s"}'
TIMEOUT = 'kv_gateway_upstream_failures_total{kind="timeout",worker="http://w1"}'
GREW = {LAG % "0.01": 995.0, LAG % "0.1": 1000.0, TIMEOUT: 1.0}
LATE = GREW | {LAG % "0.01": 900.0}
FINE = Report(
    outcomes=[WELL, WELL, LOST],
    faults={"http://w1": "hung", "http://w2": ""},
    inflight={"http://w1": 0, "http://w2": 1},
    metrics=GREW,
    took=["chaos-1"],
    files=[100] * 8,
    memory_mb=[200.0] * 8,
    waited_share=0.0,
    idle_lag_s=0.001,
)


def test_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """A hung worker may lose what was in flight and five more."""
    assert print_report(FINE)
    page = capsys.readouterr().out
    assert "3 requests, 1 lost: 1x 504 upstream_timeout" in page
    assert "BROKEN" not in page


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("clear error", {"outcomes": [WELL, Outcome("x", 0.0, error="cut")]}),
        ("w1 hung", {"metrics": GREW | {TIMEOUT: 6.0}}),
        ("executed twice", {"took": ["chaos-1", "chaos-1"]}),
        ("event loop", {"metrics": LATE}),
        ("memory", {"memory_mb": [200.0] * 6 + [400.0] * 2}),
    ],
)
def test_what_is_broken(
    capsys: pytest.CaptureFixture[str], said: str, changes: dict[str, object]
) -> None:
    """Each bound by itself."""
    assert not print_report(msgspec.structs.replace(FINE, **changes))
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if "BROKEN" in line)
    assert said in line


def test_lag_of_the_machine_is_not_the_gateways() -> None:
    """What an idle process is late by is added to what may be."""
    late = msgspec.structs.replace(FINE, metrics=LATE, idle_lag_s=0.09)
    assert print_report(late)


def test_cells_of_streams() -> None:
    """How many, and how fast each."""
    assert cells("2000x4,300x0.5") == [(2000, 4.0), (300, 0.5)]
