"""The doctor says what is wrong with where workers come from."""

import random

import pytest

from gateway.cli import main
from gateway.discovery.standing import SourceFailed, SourceStanding
from gateway.doctor.source_findings import examine_sources


def standing(name: str) -> SourceStanding:
    """A source that has told nothing yet."""
    reasons = ("refused", "malformed")
    return SourceStanding(name, reasons, clock=lambda: 0.0, rng=random.Random(1))


def test_sources_that_fail_or_name_nobody() -> None:
    """Each with what mends it; one that names somebody has nothing to say."""
    fine, empty, refused, odd = map(standing, ("dns/a:1", "dns/b:1", "k8s/c", "k8s/d"))
    refused.failed(SourceFailed("refused", "answers 403"))
    odd.failed(SourceFailed("malformed", "no JSON"))
    found = list(examine_sources((fine, empty, refused, odd), {"dns/a:1": 2}))
    assert [(one.url, one.state) for one in found] == [
        ("dns/b:1", "empty"),
        ("k8s/c", "fails"),
        ("k8s/d", "fails"),
    ]
    problems = [finding for one in found for finding in one.findings]
    assert [problem.problem for problem in problems] == [
        "it names no worker",
        "answers 403",
        "no JSON",
    ]
    assert "Role" in problems[1].remedy
    assert all(problem.wrong for problem in problems)


def test_a_name_without_workers(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing there is not nothing wrong: status 1, and the name is named."""
    words = ["doctor", "--workers-dns", "nobody.invalid:8000", "--wait", "0.1"]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "dns/nobody.invalid:8000" in said
    assert "nothing is wrong" not in said
