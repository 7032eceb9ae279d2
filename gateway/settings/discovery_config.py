"""The options by which workers are found where nobody names each: DNS, Kubernetes."""

import re
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.settings.options import option
from gateway.settings.proxy_config import ProxyConfig
from gateway.settings.values import port_number, worker_url

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"


class DnsName(msgspec.Struct, frozen=True):
    """A name whose addresses are workers, and their port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def dns_name(text: str) -> DnsName:
    """`NAME:PORT`; ValueError."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or ":" in host or "/" in host:
        raise ValueError("is not of the form NAME:PORT")
    worker_url(f"http://{host}")
    number = port_number(port)
    if not number:
        raise ValueError("is not of the form NAME:PORT")
    return DnsName(host.lower(), number)


class KubernetesService(msgspec.Struct, frozen=True):
    """A service whose endpoints are workers; of which port, where it has several."""

    namespace: str
    name: str
    port: str | int | None = None

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"{self.namespace}/{self.name}{port}"


def kubernetes_service(text: str) -> KubernetesService:
    """`NAMESPACE/SERVICE[:PORT]`; ValueError."""
    form = rf"({_LABEL})/({_LABEL})(?::([a-z0-9-]{{1,63}}))?"
    match = re.fullmatch(form, text.strip())
    if match is None:
        raise ValueError("is not of the form NAMESPACE/SERVICE[:PORT]")
    namespace, name, port = match.groups()
    if port is None or not port.isdecimal():
        return KubernetesService(namespace, name, port)
    number = port_number(port)
    if not number:
        raise ValueError("has no port of a worker")
    return KubernetesService(namespace, name, number)


def _api_url(text: str) -> str:
    url = text.strip().rstrip("/")
    if "://" not in url:
        raise ValueError("begins with neither https:// nor http://")
    return worker_url(url)


class DiscoveryConfig(ProxyConfig, frozen=True, kw_only=True):
    """Where further workers are found, while the gateway serves."""

    workers_dns: Annotated[
        tuple[DnsName, ...],
        option(
            "name whose addresses are workers, looked up every few seconds; repeatable",
            metavar="NAME:PORT",
            parse=dns_name,
        ),
    ] = ()
    workers_k8s: Annotated[
        tuple[KubernetesService, ...],
        option(
            "Kubernetes service whose endpoints are workers, watched; the port by its "
            "name or number; repeatable",
            metavar="NAMESPACE/SERVICE[:PORT]",
            parse=kubernetes_service,
        ),
    ] = ()
    k8s_api: Annotated[
        str | None,
        option(
            "where the Kubernetes API is",
            metavar="URL",
            parse=_api_url,
            shown_default="that of the cluster it runs in",
        ),
    ] = None
    k8s_credentials: Annotated[
        Path,
        option(
            "directory with the token and ca.crt for it, read again as they change",
            metavar="DIR",
            parse=Path,
        ),
    ] = SERVICE_ACCOUNT

    @property
    def discovers(self) -> bool:
        """Whether workers may come that neither the command line nor a file names."""
        return bool(self.workers_dns or self.workers_k8s)
