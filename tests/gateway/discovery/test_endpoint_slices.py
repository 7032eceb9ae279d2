"""EndpointSlices: which addresses, which port, who is ready."""

from typing import Any

import pytest

from gateway.discovery.endpoint_slices import Malformed, Slice, present, read_slice
from tests.gateway.discovery.api import endpoint, endpoint_slice

HTTP = {"name": "http", "port": 8000}
METRICS = {"name": "metrics", "port": 9090}


def found(*slices: Any, port: str | int | None = None) -> dict[str, bool]:
    """The workers of some slices, and whether each is ready."""
    told = present([read_slice(one, port) for one in slices])
    return {url: one.ready for url, one in told.items()}


@pytest.mark.parametrize(
    ("ports", "wanted", "url"),
    [
        ([HTTP], None, "http://10.0.0.1:8000"),
        ([METRICS, HTTP], None, "http://10.0.0.1:8000"),
        ([METRICS], None, "http://10.0.0.1:9090"),
        ([{"port": 7}], None, "http://10.0.0.1:7"),
        ([METRICS, HTTP], "metrics", "http://10.0.0.1:9090"),
        ([METRICS, HTTP], 9090, "http://10.0.0.1:9090"),
        ([], 8000, "http://10.0.0.1:8000"),
        ([{"name": "any"}], 8000, "http://10.0.0.1:8000"),
        ([HTTP | {"appProtocol": "https"}], None, "https://10.0.0.1:8000"),
        ([{"port": 53, "protocol": "UDP"}, HTTP], None, "http://10.0.0.1:8000"),
        ([HTTP | {"port": 80}], None, "http://10.0.0.1"),
    ],
)
def test_the_port(
    ports: list[dict[str, object]], wanted: str | int | None, url: str
) -> None:
    """By name or number; else the one called `http`, else the first of TCP."""
    told = endpoint_slice("s", [endpoint("10.0.0.1")], ports)
    assert found(told, port=wanted) == {url: True}


@pytest.mark.parametrize(
    ("ports", "wanted"),
    [([HTTP], "grpc"), ([], None), ([{"name": "any"}], None), ([], "http")],
)
def test_no_port(ports: list[dict[str, object]], wanted: str | None) -> None:
    """The slice says that it has none such, if anybody is there."""
    told = endpoint_slice("s", [endpoint("10.0.0.1")], ports)
    assert read_slice(told, wanted) == Slice(name="s", no_port=True)
    assert not read_slice(endpoint_slice("s", [], ports), wanted).no_port


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ({}, True),
        ({"ready": True, "serving": True, "terminating": False}, True),
        ({"ready": False}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": True, "terminating": True}, False),
        ({"ready": None, "serving": None, "terminating": None}, True),
        (None, True),
    ],
)
def test_the_conditions(conditions: dict[str, bool] | None, ready: bool) -> None:
    """Unknown is ready; terminating never is, published or not."""
    told = {"addresses": ["10.0.0.1"], "conditions": conditions}
    assert found(endpoint_slice("s", [told])) == {"http://10.0.0.1:8000": ready}


def test_ipv6() -> None:
    """In brackets, and written one way; a pod of both families is one worker."""
    six = endpoint_slice("six", [endpoint("2001:DB8:0::1", uid="1")], family="IPv6")
    four = endpoint_slice("four", [endpoint("10.0.0.1", uid="1")])
    assert found(six) == {"http://[2001:db8::1]:8000": True}
    assert found(six, four) == found(four, six) == {"http://10.0.0.1:8000": True}
    other = endpoint_slice("four", [endpoint("10.0.0.1", uid="2")])
    assert len(found(six, other)) == 2


def test_names_as_addresses() -> None:
    """Of the family FQDN."""
    told = endpoint_slice("s", [endpoint("w1.example.com")], family="FQDN")
    assert found(told) == {"http://w1.example.com:8000": True}


@pytest.mark.parametrize(
    "odd",
    [
        {"addresses": []},
        {"addresses": "10.0.0.1"},
        {"addresses": [7]},
        {"addresses": ["10.0.0.1/../x"]},
        {"addresses": ["w1.example.com"]},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": "yes"}},
        {},
        None,
        3,
    ],
)
def test_an_endpoint_that_is_malformed(odd: object) -> None:
    """Is left out and counted; the others of the slice are there."""
    told = read_slice(endpoint_slice("s", [odd, endpoint("10.0.0.1")]), None)
    assert [a.url for a in told.addresses] == ["http://10.0.0.1:8000"]
    assert told.malformed == 1


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        "slice",
        {},
        {"metadata": {"name": 3}, "addressType": "IPv4"},
        {"metadata": {"name": "s"}, "addressType": "IPv4", "ports": 3},
        {"metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"port": "x"}]},
    ],
)
def test_an_object_that_is_no_slice(odd: object) -> None:
    """Is refused as a whole."""
    with pytest.raises(Malformed):
        read_slice(odd, None)


def test_a_slice_without_lists() -> None:
    """Null is as good as empty."""
    told = endpoint_slice("s", []) | {"endpoints": None, "ports": None}
    assert read_slice(told, None) == Slice(name="s")
