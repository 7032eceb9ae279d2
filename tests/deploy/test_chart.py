"""The Helm chart, rendered by Helm itself: what comes of values, the drain contract."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from deploy import chart
from deploy.__main__ import HERE
from gateway.cli import parser
from gateway.settings.config import Config
from gateway.settings.options import options_of
from gateway.settings.reading import read
from tests.deploy.kubernetes import check, objects

pytestmark = pytest.mark.skipif(
    not chart.is_available(), reason="Helm's SDK is not installed (helm-python-sdk)"
)
SOME: Mapping[str, Any] = {"workers": {"urls": ["http://w1:8000"]}}
EVERYTHING: Mapping[str, Any] = {
    "workers": {
        "services": [
            {"name": "vllm", "namespace": "llm", "port": "http"},
            {"name": "trtllm", "port": 8000},
            {"name": "other", "namespace": "llm"},
        ],
        "dns": ["w.example.com:8000"],
        "urls": ["http://a:8000", "http://b:8000"],
        "file": '[[workers]]\nurl = "http://c:8000"\nengine = "sglang"\n',
    },
    "model": {"source": "/models/qwen3", "claim": "models", "hubCacheClaim": "hub"},
    "replicas": 3,
    "image": {"repository": "images.example.com/kv-gateway", "tag": "x"},
    "imagePullSecrets": [{"name": "pull"}],
    "args": ["--max-inflight-tokens=60000"],
    "env": [{"name": "KV_GATEWAY_LOG_LEVEL", "value": "debug"}],
    "processes": 2,
    "tls": {"secret": "certificate"},
    "keys": {
        "clients": {"name": "clients"},
        "admin": {"name": "keys"},
        "metrics": {"name": "keys"},
        "worker": {"name": "keys", "key": "w"},
    },
    "drain": {"preStopSeconds": 7, "delaySeconds": 11, "timeoutSeconds": 300},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}},
    "serviceAccount": {"name": "mine", "annotations": {"a": "b"}},
    "networkPolicy": {
        "from": [{"podSelector": {}}],
        "restrictEgress": True,
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "p"}},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "volumes": [{"name": "more", "emptyDir": {}}],
    "volumeMounts": [{"name": "more", "mountPath": "/more", "readOnly": True}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"e": "f"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}


@pytest.fixture(scope="module")
def everything() -> dict[str, str]:
    """The chart with every value set."""
    return chart.render(EVERYTHING, namespace="gateways")


def only(rendered: Mapping[str, str], path: str) -> Any:
    """The one object of a template."""
    (one,) = objects(rendered[path])
    return one


def container(rendered: Mapping[str, str]) -> Any:
    """The gateway's container."""
    pod = only(rendered, "deployment.yaml")["spec"]["template"]["spec"]
    (one,) = pod["containers"]
    return one


def options(rendered: Mapping[str, str]) -> Config:
    """What the gateway reads from the container's arguments."""
    given = parser("serve").parse_args(container(rendered)["args"])
    return read(Config, given, {})


def test_helm_finds_nothing_to_say() -> None:
    """Its linter, with values of all kinds."""
    assert chart.lint(EVERYTHING) == []
    assert chart.lint(SOME) == []


def test_what_is_rendered_fits_kubernetes(everything: dict[str, str]) -> None:
    """Each object by its schema, strictly, in the oldest release of the chart too."""
    found = [one for text in everything.values() for one in check(text)]
    kinds = {one["kind"] for one in found}
    assert kinds == {
        *("ConfigMap", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget"),
        *("PrometheusRule", "Role", "RoleBinding", "Service", "ServiceAccount"),
        "ServiceMonitor",
    }
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", n) for _, n in names)


def test_defaults_fit_kubernetes() -> None:
    """As little as can be said."""
    rendered = chart.render(SOME)
    found = {one["kind"] for text in rendered.values() for one in check(text)}
    assert "Role" not in found
    assert "ServiceMonitor" not in found
    pod = only(rendered, "deployment.yaml")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert options(rendered).workers == (("http://w1:8000",),)


def test_the_arguments_are_the_gateways(everything: dict[str, str]) -> None:
    """The container's own command line, as the gateway reads it."""
    config = options(everything)
    services = [str(service) for service in config.workers_k8s]
    assert services == ["llm/vllm:http", "gateways/trtllm:8000", "llm/other"]
    assert [str(name) for name in config.workers_dns] == ["w.example.com:8000"]
    assert config.workers == (("http://a:8000", "http://b:8000"),)
    assert str(config.workers_file) == "/workers/workers.toml"
    (told,) = only(everything, "workers-file.yaml")["data"].values()
    assert told == EVERYTHING["workers"]["file"]
    assert config.model == ((None, "/models/qwen3"),)
    assert config.max_inflight_tokens == 60000
    assert (config.port, config.admin_port, config.processes) == (8080, 9090, 2)
    assert str(config.api_keys_file) == "/keys/keys.toml"
    assert (str(config.tls_cert), str(config.tls_key)) == (
        "/tls/tls.crt",
        "/tls/tls.key",
    )
    variables = {option.variable for option in options_of(Config)}
    named = {one["name"] for one in container(everything)["env"]}
    assert named - {"HF_HOME"} <= variables


@pytest.mark.parametrize("drain", [{}, EVERYTHING["drain"]])
def test_the_pods_grace_is_that_of_the_drain(drain: dict[str, int]) -> None:
    """Left alone, then served while /ready is 503, then open requests: all fits in."""
    rendered = chart.render({**SOME, "drain": drain})
    config = options(rendered)
    pod = only(rendered, "deployment.yaml")["spec"]["template"]["spec"]
    alone = container(rendered)["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = alone + config.drain_delay + config.drain_timeout
    assert pod["terminationGracePeriodSeconds"] == needed + 10
    probe = container(rendered)["readinessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] <= config.drain_delay


def test_what_is_for_operators(everything: dict[str, str]) -> None:
    """Has a service of its own, which the monitor finds; or it is not apart."""
    assert [p["name"] for p in only(everything, "service.yaml")["spec"]["ports"]] == [
        "http"
    ]
    service = only(everything, "service-metrics.yaml")
    monitor = only(everything, "servicemonitor.yaml")["spec"]
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["endpoints"]
    (port,) = service["spec"]["ports"]
    assert (endpoint["port"], endpoint["scheme"]) == (port["name"], "https")
    assert endpoint["authorization"]["credentials"]["name"] == "keys"
    monitored = {"monitoring": {"serviceMonitor": {"enabled": True}}}
    rendered = chart.render({**SOME, **monitored, "adminPort": 0})
    assert "service-metrics.yaml" not in {p for p, t in rendered.items() if t.strip()}
    assert options(rendered).admin_port is None
    monitor = only(rendered, "servicemonitor.yaml")["spec"]
    labels = only(rendered, "service.yaml")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["endpoints"][0]["port"] == "http"


def test_probes_are_apart() -> None:
    """Alive is not ready: a gateway without workers is not restarted."""
    one = container(chart.render(SOME))
    paths = {
        name: one[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "liveness", "readiness")
    }
    assert paths == {
        "startup": "/health",
        "liveness": "/health",
        "readiness": "/ready",
    }


def test_nobody_and_read_only(everything: dict[str, str]) -> None:
    """What the pods may do; what they write to are volumes."""
    pods = [
        only(everything, "deployment.yaml")["spec"]["template"]["spec"],
        only(everything, "tests/ready.yaml")["spec"],
    ]
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (one,) = pod["containers"]
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["resources"]["limits"]["memory"]
    mounts = {
        m["mountPath"]: m.get("readOnly", False)
        for m in pods[0]["containers"][0]["volumeMounts"]
    }
    written = {path for path, is_read_only in mounts.items() if not is_read_only}
    assert written == {"/tmp", "/cache"}
    others = {"/models", "/hub", "/keys", "/tls", "/workers", "/more"}
    assert set(mounts) - written == others
    user = pods[0]["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in (HERE / "docker" / "Dockerfile").read_text()


def test_who_the_workers_are_and_no_more(everything: dict[str, str]) -> None:
    """A role in each namespace with workers: EndpointSlices, to be read."""
    roles = objects(everything["role.yaml"])
    assert [role["metadata"]["namespace"] for role in roles] == ["llm", "gateways"]
    for role in roles:
        assert role["rules"] == [
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["get", "list", "watch"],
            }
        ]
    for role, binding in zip(
        roles, objects(everything["rolebinding.yaml"]), strict=True
    ):
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["metadata"]["namespace"] == role["metadata"]["namespace"]
        subject = {"kind": "ServiceAccount", "name": "mine", "namespace": "gateways"}
        assert binding["subjects"] == [subject]


def test_rules_and_dashboards_are_those_of_today(everything: dict[str, str]) -> None:
    """Not copies of another day."""
    rules = only(everything, "prometheusrule.yaml")["spec"]
    assert rules == yaml.safe_load((HERE / "prometheus" / "rules.yaml").read_text())
    boards = objects(everything["dashboards.yaml"])
    shown = {name: text for one in boards for name, text in one["data"].items()}
    files = sorted(HERE.glob("grafana/*.json"))
    assert sorted(shown) == [path.name for path in files]
    for path in files:
        assert json.loads(shown[path.name]) == json.loads(path.read_text())


def test_the_manifests_are_those_of_the_chart() -> None:
    """`python -m deploy` was run after the last change; nothing else lies there."""
    made = dict(chart.manifests())
    for path, text in made.items():
        assert path.read_text() == text, path.name
    files = chart.MANIFESTS.rglob("*.yaml")
    there = {path for path in files if path.parent.name != "examples"}
    ours = {chart.MANIFESTS / "values.yaml", chart.MANIFESTS / "kustomization.yaml"}
    assert there - ours == set(made)
