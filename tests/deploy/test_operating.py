"""docs/operating.md: what it tells to type works, and what it links to is there."""

import re
import shlex

import pytest

from deploy.alerts import ALERTS
from deploy.rules import RUNBOOK
from tests.deploy.test_promtool import PROMTOOL, promtool
from tests.documents import ROOT
from tests.running import SIM, StartGateway, StartWorker

DOCUMENT = ROOT / "docs" / "operating.md"
TEXT = DOCUMENT.read_text()
COMMANDS = re.findall(r"^    (\S.*)$", TEXT, re.MULTILINE)


def test_every_alert_has_its_runbook() -> None:
    """The link that goes along with an alert leads to its paragraph."""
    headings = re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)
    assert headings == [alert.name for alert in ALERTS]
    assert [heading.lower() for heading in headings] == [a.anchor for a in ALERTS]
    assert f"{DOCUMENT.relative_to(ROOT)}#" == RUNBOOK


def test_every_file_is_there() -> None:
    """Links, pictures, and files that are named."""
    linked = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)
    assert len(linked) >= 5
    named = re.findall(r"deploy/[\w./-]+\w", TEXT)
    assert all((ROOT / "docs" / name).exists() for name in linked)
    assert all((ROOT / name).exists() for name in named)


def test_the_commands_are_those_that_are_tried() -> None:
    """A new one wants a test."""
    tried = {"curl", "prometheus", "promtool", "ssh"}
    assert {command.split()[0] for command in COMMANDS} == tried


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_prometheus_takes_the_configuration() -> None:
    """The one that `prometheus` is started with, and promtool's commands as written."""
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        if program == "promtool":
            assert promtool(*arguments, directory=ROOT).endswith("\n0")
        if program == "prometheus":
            (config,) = [a for a in arguments if a.startswith("--config.file=")]
            path = config.partition("=")[2]
            assert promtool("check", "config", path, directory=ROOT).endswith("\n0")


async def test_curl(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """Each route that is asked answers, and has what it is said to have."""
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    asked = [c.split()[-1] for c in COMMANDS if c.startswith("curl ")]
    pages = [await gateway.get(url.partition(":8080")[2]) for url in asked]
    workers, recent, index = pages
    assert workers["workers"][0]["url"] == worker.url
    assert recent["decisions"] == []
    assert index["blocks"] == 0
