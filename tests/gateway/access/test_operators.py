"""Who may see /gateway, and what opens a server with one key."""

import pytest

from gateway.access.errors import Forbidden, Unauthorized, WrongApiKey
from gateway.access.operators import check_admin, check_api_key


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_needs_no_key(peer: str) -> None:
    """Peers on the machine are let in."""
    check_admin(peer, None, None)


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
