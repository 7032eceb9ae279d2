"""EndpointSlices of a Kubernetes service: their JSON read, and who is ready by them.

`discovery.k8s.io/v1`. Nothing is asked here: see `kubernetes.py`.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.discovery.roster import Present
from gateway.settings.values import worker_url

HTTP = "http"


class Malformed(ValueError):
    """An object that is no EndpointSlice."""


class Address(msgspec.Struct, frozen=True):
    """One endpoint: where it is, and whether it is ready for requests."""

    url: str
    ready: bool
    family: str
    target: str | None
    """What it is an address of: the uid of a pod, as a rule."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of one EndpointSlice."""

    name: str
    addresses: tuple[Address, ...] = ()
    malformed: int = 0
    """Endpoints of it that cannot be read."""
    no_port: bool = False
    """It has endpoints, but not the port that is asked for."""


class _Metadata(msgspec.Struct):
    name: str


class _Conditions(msgspec.Struct):
    ready: bool | None = None
    terminating: bool | None = None


class _Target(msgspec.Struct):
    uid: str | None = None


class _Endpoint(msgspec.Struct, rename="camel"):
    addresses: list[str]
    conditions: _Conditions | None = None
    target_ref: _Target | None = None


class _Port(msgspec.Struct, rename="camel"):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None
    app_protocol: str | None = None


class _EndpointSlice(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    address_type: str
    endpoints: list[Any] | None = None
    ports: list[_Port] | None = None


def read_slice(told: object, port: str | int | None) -> Slice:
    """One EndpointSlice of JSON; Malformed. An endpoint that is so is left out."""
    try:
        found = msgspec.convert(told, _EndpointSlice)
    except msgspec.ValidationError as error:
        raise Malformed(str(error)) from None
    name, endpoints = found.metadata.name, found.endpoints or []
    chosen = _chosen(found.ports or [], port)
    if chosen is None:
        return Slice(name=name, no_port=bool(endpoints))
    addresses: list[Address] = []
    for endpoint in endpoints:
        try:
            addresses.append(_address(endpoint, found.address_type, chosen))
        except ValueError:
            continue
    malformed = len(endpoints) - len(addresses)
    return Slice(name=name, addresses=tuple(addresses), malformed=malformed)


def _chosen(ports: Iterable[_Port], wanted: str | int | None) -> _Port | None:
    """The port of a slice that is meant: by number, by name; else `http`, else any.

    A number need not be in the slice: a service may have no ports of its own.
    """
    ports = [port for port in ports if port.protocol in (None, "", "TCP")]
    if isinstance(wanted, int):
        same = (port for port in ports if port.port == wanted)
        return next(same, _Port(port=wanted))
    numbered = [port for port in ports if port.port]
    if wanted is not None:
        return next((port for port in numbered if port.name == wanted), None)
    named = (port for port in numbered if port.name == HTTP)
    return next(named, numbered[0] if numbered else None)


def _address(told: object, family: str, port: _Port) -> Address:
    """One endpoint; ValueError. Its addresses are alike: the first one will do."""
    endpoint = msgspec.convert(told, _Endpoint)
    if not endpoint.addresses:
        raise Malformed("an endpoint without an address")
    host = endpoint.addresses[0]
    if family != "FQDN":
        host = str(ipaddress.ip_address(host))
    host = f"[{host}]" if ":" in host else host
    scheme = "https" if port.app_protocol == "https" else "http"
    conditions = endpoint.conditions or _Conditions()
    ready = conditions.ready is not False and not conditions.terminating
    target = endpoint.target_ref.uid if endpoint.target_ref is not None else None
    return Address(worker_url(f"{scheme}://{host}:{port.port}"), ready, family, target)


def present(slices: Iterable[Slice]) -> Mapping[str, Present]:
    """Who is there, by URL, over all slices of a service.

    One that is in several slices is ready if it is in one of them. A pod with addresses
    of both families is one worker: that of IPv4.
    """
    addresses = [address for one in slices for address in one.addresses]
    of_ipv4 = {a.target for a in addresses if a.family == "IPv4" and a.target}
    found: dict[str, Present] = {}
    for address in addresses:
        if address.family != "IPv4" and address.target in of_ipv4:
            continue
        if address.url not in found or address.ready > found[address.url].ready:
            found[address.url] = Present(address.ready, address.target)
    return found
