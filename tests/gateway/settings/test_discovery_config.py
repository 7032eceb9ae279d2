"""The options of discovery: their forms, and that one of them is enough to start."""

import pytest

from gateway.settings.config import Config
from gateway.settings.discovery_config import (
    DnsName,
    KubernetesService,
    dns_name,
    kubernetes_service,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vllm.llm.svc:8000", DnsName("vllm.llm.svc", 8000)),
        (" W1:80 ", DnsName("w1", 80)),
    ],
)
def test_names(text: str, name: DnsName) -> None:
    """A name and a port; written as they are read."""
    assert dns_name(text) == name
    assert dns_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    ["w1", "w1:", ":80", "w1:0", "w1:99999", "http://w1:80", "[::1]:80", "a b:1"],
)
def test_no_names(text: str) -> None:
    """Refused."""
    with pytest.raises(ValueError, match=r"."):
        dns_name(text)


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ("llm/vllm", KubernetesService("llm", "vllm")),
        ("llm/vllm:http", KubernetesService("llm", "vllm", "http")),
        ("llm/vllm:8000", KubernetesService("llm", "vllm", 8000)),
    ],
)
def test_services(text: str, service: KubernetesService) -> None:
    """Namespace, name, port; written as they are read."""
    assert kubernetes_service(text) == service
    assert kubernetes_service(str(service)) == service


@pytest.mark.parametrize(
    "text",
    ["vllm", "a/b/c", "A/b", "a/b:", "a/b:0", "a/b:99999", "../b", "a/b?c", "a/-b"],
)
def test_no_services(text: str) -> None:
    """Refused, and so is what would change the path that is asked."""
    with pytest.raises(ValueError, match=r"."):
        kubernetes_service(text)


def test_who_discovers() -> None:
    """With either there may be workers that nobody names."""
    assert not Config().discovers
    assert Config(workers_dns=(DnsName("w", 1),)).discovers
    assert Config(workers_k8s=(KubernetesService("a", "b"),)).discovers
