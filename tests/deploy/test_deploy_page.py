"""docs/deploy.md: what it tells to type works as far as it can be tried here."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import chart
from gateway.cli import parser
from gateway.discovery import answers, api_server, dns
from gateway.settings.config import Config
from gateway.settings.options import options_of
from simworker.arguments import from_args
from tests.deploy.kubernetes import RELEASES, check
from tests.documents import ROOT
from tests.gateway.discovery.api import ScriptedApi, endpoint, endpoint_slice
from tests.running import StartGateway, StartWorker, until

TEXT = (ROOT / "docs" / "deploy.md").read_text()
COMMANDS = [
    shlex.split(line.removesuffix(" &"))
    for line in re.findall(r"^    (\S.*)$", TEXT, re.MULTILINE)
]
WORKERS = chart.MANIFESTS / "examples" / "simulated-workers.yaml"
CHART_VALUES = yaml.safe_load((chart.CHART / "values.yaml").read_text())


def commands(*words: str) -> list[list[str]]:
    """Those that begin so."""
    return [one for one in COMMANDS if tuple(one[: len(words)]) == words]


def deployment(path: Path) -> Any:
    """The deployment of a file."""
    found = check(path.read_text())
    return next(one for one in found if one["kind"] == "Deployment")


def test_all_kinds_of_commands_are_looked_at() -> None:
    """Whatever is not known here is not tried."""
    assert {one[0] for one in COMMANDS} == {"docker", "kubectl", "helm", "curl"}


def test_every_file_and_link_is_there() -> None:
    """Of commands, and of links."""
    for one in COMMANDS:
        for word in one:
            if word.startswith("deploy/") and word.split("/")[1] != "kv-gateway":
                assert (ROOT / word).exists(), word
    linked = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)
    assert len(linked) >= 3
    for link in linked:
        assert (ROOT / "docs" / link).exists(), link


def test_what_containers_are_told() -> None:
    """`docker run` has options that the gateway knows; the tag is the chart's."""
    (run,) = commands("docker", "run")
    image = run.index("kv-gateway:0.1.0")
    given = parser("serve").parse_args(["serve", *run[image + 1 :]])
    assert given.workers == ["http://w1:8000"]
    (build,) = commands("docker", "build")
    assert build[build.index("-t") + 1] == run[image]
    version = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"]
    assert run[image] == f"kv-gateway:{version}"
    for path in (WORKERS, chart.MANIFESTS / "deployment.yaml"):
        (container,) = deployment(path)["spec"]["template"]["spec"]["containers"]
        assert container["image"] == run[image]


@pytest.mark.skipif(not chart.is_available(), reason="Helm's SDK is not installed")
def test_what_helm_is_told() -> None:
    """The command's values make the arguments that the manifests have, too."""
    (install,) = commands("helm", "install")
    sets = [install[i + 1] for i, word in enumerate(install) if word == "--set"]
    service = dict(one.partition("[0].")[2].split("=") for one in sets)
    assert all(one.startswith("workers.services[0].") for one in sets)
    namespace = install[install.index("--namespace") + 1]
    rendered = chart.render({"workers": {"services": [service]}}, namespace=namespace)
    told = yaml.safe_load(rendered["deployment.yaml"])
    wanted = deployment(chart.MANIFESTS / "deployment.yaml")
    (one,), (other,) = (
        d["spec"]["template"]["spec"]["containers"] for d in (told, wanted)
    )
    assert one["args"] == other["args"]


def test_every_value_and_option_that_is_named_exists() -> None:
    """In the text, between backquotes."""
    words = set(re.findall(r"`([^`\n]+)`", TEXT))
    flags = {word.split()[0] for word in words if word.startswith("--")}
    assert flags <= {option.flag for option in options_of(Config)}
    for word in words:
        head, *path = re.split(r"[.:]", word.split(" ")[0])
        if head not in CHART_VALUES or not path:
            continue
        value = CHART_VALUES[head]
        for name in filter(None, path):
            if isinstance(value, dict):
                assert name in value, word
                value = value[name]


def test_the_figures_are_those_of_the_code() -> None:
    """Seconds, answers, releases, the grace as the chart comes."""
    drain = CHART_VALUES["drain"]
    assert f"{sum(drain.values()) + 10} s as the chart comes" in TEXT
    assert f"looked up every {dns.LOOK_S:g} s" in TEXT
    assert (answers.MISSED, answers.EMPTY) == (3, 12)
    assert "three answers in a row" in TEXT
    assert "after twelve empty answers" in TEXT
    assert (api_server.WATCH_S, api_server.IDLE_S) == (5 * 60, 90)
    assert "five to ten minutes, or without an event for 90 s" in TEXT
    assert "Kubernetes {} and {}".format(*RELEASES) in TEXT.replace("\n", " ")
    assert "three minutes" in TEXT
    probe = deployment(chart.MANIFESTS / "deployment.yaml")["spec"]["template"]["spec"]
    startup = probe["containers"][0]["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] == 180


async def test_the_manifests_fit_each_other(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    tmp_path: Path,
) -> None:
    """The gateway's arguments, before the simulated workers of the example.

    Their service is a scripted API server's; addresses and ports are of this machine.
    """
    service = next(o for o in check(WORKERS.read_text()) if o["kind"] == "Service")
    (port,) = service["spec"]["ports"]
    (container,) = deployment(WORKERS)["spec"]["template"]["spec"]["containers"]
    told = from_args(parser("sim-worker").parse_args(container["args"]))
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"http": told.port, "kv-events": told.kv_events_port}
    assert port["targetPort"] == "http"
    (ours,) = deployment(chart.MANIFESTS / "deployment.yaml")["spec"]["template"][
        "spec"
    ]["containers"]
    words = dict(word.split("=", 1) for word in ours["args"] if "=" in word)
    option = next(o for o in options_of(Config) if o.flag == "--workers-k8s")
    wanted = option.from_text(words["--workers-k8s"])
    assert str(wanted) == f"llm/{service['metadata']['name']}:{port['name']}"
    assert service["metadata"]["namespace"] == "llm"
    worker = await start_worker()
    api = ScriptedApi(service["metadata"]["name"])
    await api.start()
    at = [{"name": port["name"], "port": int(worker.url.rpartition(":")[2])}]
    api.put(endpoint_slice("workers-x7k2p", [endpoint("127.0.0.1")], at))
    try:
        gateway = await start_gateway(
            workers_k8s=(wanted,), k8s_api=api.url, k8s_credentials=tmp_path
        )
        await until(
            lambda: [w.state for w in gateway.gateway.pool.workers] == ["ready"]
        )
        answer = await gateway.chat([{"role": "user", "content": "hi"}])
        assert answer.worker == worker.url
    finally:
        await api.stop()
