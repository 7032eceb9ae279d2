"""The compose file: by the specification, and what its services are told to run."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from deploy.__main__ import HERE
from deploy.boards import DASHBOARDS
from gateway.cli import parser
from gateway.settings.discovery_config import DnsName, dns_name
from render import Renderer
from simworker.arguments import from_args
from tests.deploy.test_promtool import PROMTOOL, promtool
from tests.running import StartGateway, StartWorker, until

FILE = HERE / "compose.yaml"


@pytest.fixture(scope="module")
def services() -> Any:
    """The services by name."""
    return yaml.safe_load(FILE.read_text())["services"]


def test_it_is_a_compose_file() -> None:
    """By the specification; every network, volume and config that is used is there."""
    compose_spec = pytest.importorskip("compose_spec")
    told = {
        name: part
        for name, part in yaml.safe_load(FILE.read_text()).items()
        if not name.startswith("x-")
    }
    compose = compose_spec.PyCompose.from_json(json.dumps(told))
    compose.validate()
    names = ["gateway", "worker", "prometheus", "grafana"]
    assert sorted(compose.service_names()) == sorted(names)
    told["services"]["gateway"]["comand"] = []
    with pytest.raises(ValueError, match="comand"):
        compose_spec.PyCompose.from_json(json.dumps(told))


def test_three_workers_that_the_gateway_looks_up(services: Any) -> None:
    """Their name and port are those that the gateway is told."""
    words = services["gateway"]["command"]
    given = parser("serve").parse_args(["serve", *words])
    (name,) = map(dns_name, given.workers_dns)
    assert services["worker"]["deploy"]["replicas"] == 3
    told = parser("sim-worker").parse_args(services["worker"]["command"])
    worker = from_args(told)
    assert name == DnsName("worker", worker.port)
    assert worker.host == "0.0.0.0"
    assert worker.kv_events


def test_nothing_may_be_written_but_volumes(services: Any) -> None:
    """Read-only, without capabilities; ports are open to this machine only."""
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert all(p.startswith("127.0.0.1:") for p in service.get("ports", ())), name
        image = service["image"]
        assert re.search(r":(v?\d+\.\d+\.\d+|local)$", image), image


def test_the_gateway_has_time_to_leave(services: Any) -> None:
    """The defaults of the drain fit in what Docker gives it."""
    grace = int(services["gateway"]["stop_grace_period"].removesuffix("s"))
    assert grace > 5 + 20


def mounted(service: Any) -> dict[str, Path]:
    """What of this directory a service sees, by where it sees it; read-only."""
    volumes = [v.split(":") for v in service["volumes"] if v.startswith(".")]
    assert all(mode == "ro" for _, _, mode in volumes)
    return {to: HERE / path for path, to, _ in volumes}


def test_prometheus_has_the_rules_and_the_gateway(services: Any) -> None:
    """At the path that it is told to read."""
    service = services["prometheus"]
    (flag,) = [w for w in service["command"] if w.startswith("--config.file=")]
    files = mounted(service)
    config = yaml.safe_load(files[flag.removeprefix("--config.file=")].read_text())
    (rules,) = config["rule_files"]
    assert files[f"/etc/prometheus/{rules}"] == HERE / "prometheus" / "rules.yaml"
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["gateway:8080"]}]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_prometheus_reads_its_files(services: Any, tmp_path: Path) -> None:
    """`promtool check config`, with the files as they are mounted."""
    for to, path in mounted(services["prometheus"]).items():
        (tmp_path / Path(to).name).write_text(path.read_text())
    said = promtool("check", "config", "prometheus.yml", directory=tmp_path)
    assert said.endswith("\n0"), said


def test_grafana_has_the_dashboards(services: Any) -> None:
    """Its provisioning, the dashboards, and the one it begins with."""
    files = mounted(services["grafana"])
    place = "/etc/grafana/provisioning"
    sources = files[f"{place}/datasources/kv-gateway.yaml"].read_text()
    (source,) = yaml.safe_load(sources)["datasources"]
    assert source["url"] == "http://prometheus:9090"
    boards = files[f"{place}/dashboards/kv-gateway.yaml"].read_text()
    (provider,) = yaml.safe_load(boards)["providers"]
    assert files[provider["options"]["path"]] == HERE / "grafana"
    environment = services["grafana"]["environment"]
    home = environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    assert Path(home).stem in {board.uid for board in DASHBOARDS}


async def test_workers_tell_what_is_not_said(
    services: Any,
    renderer: Renderer,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody names their model, or where their events are: the gateway asks them."""
    loaded: list[Path] = []

    def load(source: str, **_: object) -> Renderer:
        loaded.append(Path(source))
        return renderer

    monkeypatch.setattr(Renderer, "load", load)
    told = from_args(parser("sim-worker").parse_args(services["worker"]["command"]))
    free = msgspec.structs.replace(told, port=0, kv_events_port=0, speed=100.0)
    worker = await start_worker(free)
    name = DnsName("localhost", int(worker.url.rpartition(":")[2]))
    gateway = await start_gateway(model=(), workers_dns=(name,))
    (known,) = gateway.gateway.pool.workers
    assert [path for path in loaded if (path / "tokenizer.json").exists()] == loaded
    assert loaded
    messages = [{"role": "user", "content": "hello " * 100}]
    for _ in range(2):
        await gateway.chat(messages, model=known.base_model)
        await until(lambda: known.knowledge[0].feed.counters.stored > 0)
    assert (await gateway.feed())["state"] == "live"
    assert (await gateway.hits())[0] > 0
