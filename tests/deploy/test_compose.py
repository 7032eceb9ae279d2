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


def test_what_is_mounted_is_there(services: Any) -> None:
    """Rules and dashboards of this directory, where Prometheus and Grafana look."""
    mounts = [
        volume.split(":")
        for service in services.values()
        for volume in service["volumes"]
        if volume.startswith(".")
    ]
    assert len(mounts) == 2
    assert all((HERE / path).exists() and mode == "ro" for path, _, mode in mounts)
    configs = yaml.safe_load(FILE.read_text())["configs"]
    read = {name: yaml.safe_load(one["content"]) for name, one in configs.items()}
    targets = {to for _, to, _ in mounts}
    assert set(read["prometheus"]["rule_files"]) <= targets
    assert read["dashboards"]["providers"][0]["options"]["path"] in targets
    (job,) = read["prometheus"]["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["gateway:8080"]}]
    (source,) = read["datasources"]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    home = services["grafana"]["environment"][
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    ]
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
