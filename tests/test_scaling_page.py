"""docs/scaling.md: its file is a configuration, and is shown as the page says."""

import re
import shlex
from pathlib import Path

import pytest

from gateway.cli import main
from tests.documents import ROOT

TEXT = (ROOT / "docs" / "scaling.md").read_text()
COMMANDS = re.findall(r"^    (kv-gateway .+|curl .+)$", TEXT, re.MULTILINE)


@pytest.fixture(autouse=True)
def where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory with the file of the page."""
    (block,) = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    (tmp_path / "gateway.toml").write_text(block)
    monkeypatch.chdir(tmp_path)


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines that the page has are the first that are printed."""
    (command,) = [c for c in COMMANDS if "config --show" in c]
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out.splitlines()
    (block,) = re.findall(r"<!-- config --show -->\n(.*?)<!--", TEXT, re.DOTALL)
    shown = [line.strip() for line in block.splitlines()]
    assert shown == printed[: len(shown)]
    assert "# drain-timeout: 20" in printed


def test_it_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of a file without a mistake; one with a mistake is named."""
    assert main(["config", "--config", "gateway.toml"]) == 0
    assert capsys.readouterr().out == ""
    with Path("gateway.toml").open("a") as file:
        file.write("[nonsense]\n")
    assert main(["config", "--config", "gateway.toml"]) == 2
    assert "gateway.toml: there is no option 'nonsense'" in capsys.readouterr().err


def test_the_commands_are_those_that_are_tried() -> None:
    """The others are tried where processes run, or parsed with those of the README."""
    asked = [c for c in COMMANDS if c.startswith("curl ")]
    assert all(":9090/" in command for command in asked)
    assert len(asked) == 3
