"""Who may see /gateway, and what opens a server with one key."""

import pytest

from gateway.access.errors import Forbidden, Unauthorized, WrongApiKey
from gateway.access.operators import check_admin, check_api_key, is_passed_on
from tests.running import StartGateway


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_needs_no_key(peer: str) -> None:
    """Peers on the machine are let in."""
    check_admin(peer, None, None)


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For", "x-forwarded-proto", "Forwarded", "Via", "X-Real-IP",
     "X-Envoy-Attempt-Count", "X-Forwarded-Client-Cert"],
)  # fmt: skip
def test_what_proxies_say(header: str) -> None:
    """A request with one of their headers is not of the peer that brings it."""
    assert is_passed_on({"Host": "g", header: ""})
    assert not is_passed_on({"Host": "g", "User-Agent": "curl", "X-Request-ID": "via"})


async def test_a_proxy_on_this_machine_opens_nothing(
    start_gateway: StartGateway,
) -> None:
    """Who is behind it needs the key, whatever they say to be."""
    gateway = await start_gateway(admin_key="of-operators")
    passed_on = {"X-Forwarded-For": "127.0.0.1"}
    for path in ("/gateway/workers", "/gateway/index", "/gateway/"):
        await gateway.get(path, 401, headers=passed_on)
    opened = {**passed_on, "Authorization": "Bearer of-operators"}
    await gateway.get("/gateway/workers", 200, headers=opened)
    await gateway.get("/gateway/workers", 200)


def test_others_need_the_key() -> None:
    """From elsewhere: 403 without a configured key, 401 with a wrong one."""
    with pytest.raises(Forbidden):
        check_admin("10.0.0.1", "Bearer x", None)
    with pytest.raises(Unauthorized):
        check_admin("10.0.0.1", None, "secret")
    with pytest.raises(Unauthorized):
        check_admin("10.0.0.1", "Bearer nope", "secret")
    with pytest.raises(Forbidden):
        check_admin(None, None, None)
    check_admin("10.0.0.1", "Bearer secret", "secret")


def test_keys_of_any_bytes() -> None:
    """A header that is no UTF-8 is a wrong key, or the right one."""
    with pytest.raises(Unauthorized):
        check_admin("10.0.0.1", "Bearer \udcff", "secret")
    check_admin("10.0.0.1", "BEARER \udcff ", "\udcff")


@pytest.mark.parametrize(
    "header", [None, "", "secret", "Basic secret", "Bearer", "Bearer secre", "Bearer  "]
)
def test_the_api_key(header: str | None) -> None:
    """It comes as a bearer token, or not at all."""
    with pytest.raises(WrongApiKey):
        check_api_key(header, "secret")
    check_api_key("bearer secret", "secret")
