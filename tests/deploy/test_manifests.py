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
    """Of service, budget, policy and monitor; the service's port is one of theirs."""
    by_kind = {one["kind"]: one for p in OBJECTS for one in objects(p.read_text())}
    template = by_kind["Deployment"]["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    service = by_kind["Service"]
    assert service["spec"]["selector"].items() <= labels
    for kind, field in (
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
        ("Deployment", "selector"),
    ):
        assert by_kind[kind]["spec"][field]["matchLabels"].items() <= labels
    monitor = by_kind["ServiceMonitor"]["spec"]
    assert (
        monitor["selector"]["matchLabels"].items()
        <= service["metadata"]["labels"].items()
    )
    (port,) = service["spec"]["ports"]
    assert monitor["endpoints"][0]["port"] == port["name"]
    (container,) = template["spec"]["containers"]
    assert port["targetPort"] in {p["name"] for p in container["ports"]}
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
