"""Prometheus' own tool reads the rules, and each alert fires when it should."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.__main__ import HERE

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)


def promtool(*arguments: str, directory: Path = HERE / "prometheus") -> str:
    """What it says, with 0 or not as its last line."""
    done = subprocess.run(
        [str(PROMTOOL), *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return f"{done.stdout}{done.stderr}\n{done.returncode}"


def test_the_rules_are_read() -> None:
    """`promtool check rules` finds every rule and no fault."""
    said = promtool("check", "rules", "rules.yaml")
    rules = (HERE / "prometheus" / "rules.yaml").read_text().count("expr:")
    assert f"SUCCESS: {rules} rules found" in said
    assert said.endswith("\n0")


def test_every_alert_fires_and_is_quiet() -> None:
    """`promtool test rules` with series for each."""
    said = promtool("test", "rules", "rules_test.yaml")
    assert said.endswith("\n0"), said


def test_the_tests_can_fail(tmp_path: Path) -> None:
    """With every alert's threshold out of reach each one that fires is missed."""
    for name in ("rules.yaml", "rules_test.yaml"):
        text = (HERE / "prometheus" / name).read_text()
        (tmp_path / name).write_text(text.replace(" for: ", " for: 9"))
    said = promtool("test", "rules", "rules_test.yaml", directory=tmp_path)
    assert said.endswith("\n1")
