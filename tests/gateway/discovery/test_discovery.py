"""Whole gateways whose workers are found: they join, serve and leave."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.discovery.discovery import Discovery, declared
from gateway.errors import ConfigError
from gateway.settings.config import Config
from gateway.settings.discovery_config import DnsName, KubernetesService
from gateway.upstreams.origin import Origin
from gateway.workers.fleet import Fleet
from simworker.server import SimWorker
from tests.gateway.discovery.api import ScriptedApi, endpoint, endpoint_slice
from tests.running import MODEL, Running, StartGateway, StartWorker, until

SERVICE = (KubernetesService("llm", "vllm"),)
CHAT = [{"role": "user", "content": "hi"}]
LEAVING = {"ready": False, "serving": True, "terminating": True}


def port_of(worker: SimWorker) -> int:
    """The port of a worker; each has its own here."""
    return Origin.parse(worker.url).port


def of(worker: SimWorker, **conditions: bool) -> dict[str, Any]:
    """A slice of one worker."""
    port = port_of(worker)
    at = [endpoint("127.0.0.1", uid=str(port), **conditions)]
    return endpoint_slice(f"s{port}", at, [{"name": "http", "port": port}])


def states(gateway: Running) -> dict[str, str]:
    """The workers and their states."""
    return {w.url: str(w.state.value) for w in gateway.gateway.pool.workers}


async def test_a_service_is_followed(
    api: ScriptedApi,
    account: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """No worker at the start; one that joins is asked first, one that leaves drained.

    Production-stack's report: requests went to pods that terminate.
    """
    first, second = await start_worker(), await start_worker()
    api.put(of(first))
    gateway = await start_gateway(
        workers_k8s=SERVICE, k8s_api=api.url, k8s_credentials=account
    )
    assert states(gateway) == {first.url: "ready"}
    assert gateway.gateway.renderers.find(MODEL, MODEL) is not None
    assert (await gateway.chat(CHAT)).worker == first.url
    api.put(of(second))
    await until(lambda: states(gateway) == {first.url: "ready", second.url: "ready"})
    api.put(of(first, **LEAVING))
    await until(lambda: states(gateway)[first.url] == "draining")
    assert {(await gateway.chat(CHAT)).worker for _ in range(4)} == {second.url}
    source = "k8s/llm/vllm"
    assert await gateway.metric("named_workers", source=source) == 2
    assert await gateway.metric("named_workers", source="workers") == 0
    success = "discovery_success_timestamp_seconds"
    assert await gateway.metric(success, source=source) > 1e9
    await api.stop()
    failures = "discovery_failures_total"

    async def noticed() -> bool:
        return await gateway.metric(failures, reason="unreachable") > 0

    await until(noticed)
    assert (await gateway.chat(CHAT)).worker == second.url


async def test_no_worker_is_found_yet(
    api: ScriptedApi,
    account: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """The gateway serves, is not ready, and is when there is one."""
    gateway = await start_gateway(
        workers_k8s=SERVICE, k8s_api=api.url, k8s_credentials=account
    )
    await gateway.get("/health")
    await gateway.get("/ready", status=503)
    worker = await start_worker()
    api.put(of(worker))
    await until(lambda: states(gateway) == {worker.url: "ready"})
    await gateway.get("/ready")
    answer = await gateway.chat(CHAT)
    assert answer.worker == worker.url
    assert await gateway.metric("not_rendered_total") == 0


async def test_a_name_is_followed(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """By the system's resolver; its worker is also named by hand, and is one worker."""
    worker, other = await start_worker(), await start_worker()
    gateway = await start_gateway(
        worker,
        workers_dns=(DnsName("localhost", port_of(worker)), DnsName("localhost", 1)),
    )
    gone = "http://127.0.0.1:1"
    assert states(gateway) == {worker.url: "ready", gone: "joining"}
    assert (await gateway.chat(CHAT)).worker == worker.url
    await gateway.post("/gateway/workers", {"url": other.url}, 201)
    page = (await gateway.get("/gateway/workers"))["workers"]
    dns = f"dns/localhost:{port_of(worker)}"
    assert {one["url"]: one["named_by"] for one in page} == {
        worker.url: ["workers", dns],
        gone: ["dns/localhost:1"],
        other.url: ["api"],
    }
    counts = await gateway.metrics()
    named = {k: v for k, v in counts.items() if k.startswith("kv_gateway_named")}
    assert sorted(named.values()) == [0, 1, 1, 1, 1]


async def test_workers_on_one_address_are_apart(
    api: ScriptedApi,
    account: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """Two ports of one IP: what is known and counted is each one's own."""
    workers = [await start_worker() for _ in range(2)]
    for worker in workers:
        api.put(of(worker))
    gateway = await start_gateway(
        workers_k8s=SERVICE, k8s_api=api.url, k8s_credentials=account
    )
    assert states(gateway) == {worker.url: "ready" for worker in workers}
    used = (await gateway.chat(CHAT)).worker
    for worker in workers:
        prompts = await gateway.metric("prompt_tokens_total", worker=worker.url)
        assert (prompts > 0) == (worker.url == used)


async def test_old_endpoints_are_no_longer_asked(
    api: ScriptedApi,
    account: Path,
    start_gateway: StartGateway,
    tasks: Callable[[], int],
) -> None:
    """Ten changes of all endpoints later there are as many tasks as before."""
    slices = [
        endpoint_slice("s", [endpoint("127.0.0.1")], [{"port": port}])
        for port in range(1, 12)
    ]
    api.put(slices[0])
    gateway = await start_gateway(
        workers_k8s=SERVICE, k8s_api=api.url, k8s_credentials=account
    )
    for source in gateway.gateway.discovery.sources:
        source.settling.roster.linger_s = 0.0
    before = tasks()
    for port in range(2, 12):
        api.put(slices[port - 1])
        wanted = [f"http://127.0.0.1:{port}"]
        await until(lambda wanted=wanted: list(states(gateway)) == wanted)  # type: ignore[misc]
    await until(lambda: tasks() < before + 10)  # each has several, some for a moment


def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service, and no API server to ask: one line that names the option."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = Config(workers_k8s=SERVICE)
    with pytest.raises(ConfigError, match="--k8s-api URL is missing"):
        Discovery(config, fleet=None)  # type: ignore[arg-type]  # it is not reached


@pytest.mark.parametrize(
    ("host", "url"),
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
)
def test_in_a_cluster(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its API server is where Kubernetes tells every process."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert Discovery(Config(workers_k8s=SERVICE), _no_fleet()).api_url == url


def _no_fleet() -> Fleet:
    return None  # type: ignore[return-value]  # nothing is followed


def test_what_is_declared(tmp_path: Path) -> None:
    """A file says more of a worker than the command line: its entry counts."""
    path = tmp_path / "workers.json"
    path.write_text('[{"url": "w2", "engine": "sglang"}, "w3"]')
    config = Config(workers=(("http://w1:8000", "http://w2:8000"),), workers_file=path)
    named = declared(config).all
    assert [(n.spec.url, n.spec.engine) for n in named] == [
        ("http://w1:8000", None),
        ("http://w2:8000", "sglang"),
        ("http://w3:8000", None),
    ]
