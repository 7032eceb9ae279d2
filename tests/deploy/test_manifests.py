"""The plain manifests are what Kubernetes takes, and fit each other."""

import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from deploy import chart
from tests.deploy.kubernetes import check, objects

KUBECTL = shutil.which("kubectl")
FILES = sorted(
    p for p in chart.MANIFESTS.rglob("*.yaml") if p.parent.name != "examples"
)
OBJECTS = [p for p in FILES if p.name not in ("values.yaml", "kustomization.yaml")]


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_each_fits_its_schema(path: Path) -> None:
    """Strictly: a field that Kubernetes does not know is a mistake."""
    (found,) = check(path.read_text())
    assert found["metadata"]["namespace"] == chart.NAMESPACE


def test_a_mistake_is_found() -> None:
    """The check is one."""
    (service,) = objects((chart.MANIFESTS / "service.yaml").read_text())
    service["spec"]["port"] = 80
    with pytest.raises(jsonschema.ValidationError, match="port"):
        check(yaml.safe_dump(service))


def test_selectors_find_the_pods() -> None:
    """Of services, budget, policy and monitor; the services' ports are theirs."""
    found = [one for p in OBJECTS for one in objects(p.read_text())]
    by_kind = {one["kind"]: one for one in found}
    template = by_kind["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    selectors = {
        "PodDisruptionBudget": "selector",
        "NetworkPolicy": "podSelector",
        "Deployment": "selector",
    }
    for kind, field in selectors.items():
        assert by_kind[kind]["spec"][field]["matchLabels"].items() <= labels
    (container,) = template["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    services = [one for one in found if one["kind"] == "Service"]
    assert len(services) == 2
    for service in services:
        assert service["spec"]["selector"].items() <= labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    rules = by_kind["NetworkPolicy"]["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == ports
    monitor = by_kind["ServiceMonitor"]["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    (chosen,) = [s for s in services if wanted <= s["metadata"]["labels"].items()]
    assert monitor["endpoints"][0]["port"] == chosen["spec"]["ports"][0]["name"]
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert template["spec"]["serviceAccountName"] == account


def test_kustomize_names_each() -> None:
    """All but those that need an operator."""
    named = yaml.safe_load((chart.MANIFESTS / "kustomization.yaml").read_text())
    assert named["resources"] == [
        path.name for path in OBJECTS if path.parent == chart.MANIFESTS
    ]


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kustomize_makes_all() -> None:
    """By kubectl itself."""
    done = subprocess.run(
        [str(KUBECTL), "kustomize", str(chart.MANIFESTS)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert len(check(done.stdout)) == len(OBJECTS) - 2
