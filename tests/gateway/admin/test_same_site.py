"""Other sites' pages, and names that lead to us, get nothing of /gateway."""

import base64

import pytest

from gateway.access.errors import Forbidden, Unauthorized
from gateway.access.operators import check_admin
from gateway.admin.same_site import check_same_site, is_private_name
from tests.running import StartGateway


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {"Sec-Fetch-Site": "cross-site"}),
        ("POST", {"Sec-Fetch-Site": "same-site"}),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
        ("POST", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        ("POST", {"Origin": "http://evil.example", "Host": "g:8080"}),
        ("DELETE", {"Origin": "null", "Host": "g:8080"}),
        ("POST", {"Origin": "http://g:9090", "Host": "g:8080"}),
        ("POST", {"Origin": "http://[", "Host": "g:8080"}),
        ("POST", {"Origin": "", "Host": "g:8080"}),
    ],
)
def test_other_sites(method: str, headers: dict[str, str]) -> None:
    """By what the browser says, or by the origin where it does not say it."""
    with pytest.raises(Forbidden):
        check_same_site(method, headers)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {}),
        ("POST", {"Sec-Fetch-Site": "same-origin", "Origin": "http://outside"}),
        ("GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}),
        ("POST", {"Origin": "http://G:8080", "Host": "g:8080"}),
        ("POST", {"Origin": "http://[::1]:8080", "Host": "[::1]:8080"}),
    ],
)
def test_the_own_page_links_and_tools(method: str, headers: dict[str, str]) -> None:
    """They pass."""
    check_same_site(method, headers)


@pytest.mark.parametrize(
    ("host", "private"),
    [
        (None, True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("10.1.2.3", True),
        ("gateway", True),
        ("g.localhost", True),
        ("host.docker.internal:80", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("localhost.evil.example", False),
        ("evil.example.", False),
        ("[", False),
    ],
)
def test_names_that_others_may_own(host: str | None, private: bool) -> None:
    """An address or a name without a dot cannot be led here by somebody's DNS."""
    assert is_private_name(host) is private


def test_a_name_led_to_loopback_needs_the_key() -> None:
    """The peer is loopback, the name is not ours: only the key opens."""
    with pytest.raises(Forbidden):
        check_admin("127.0.0.1", None, None, "evil.example")
    with pytest.raises(Unauthorized):
        check_admin("127.0.0.1", None, "secret", "evil.example")
    check_admin("127.0.0.1", "Bearer secret", "secret", "gateway.example")


@pytest.mark.parametrize(
    ("pair", "opens"),
    [
        (b"any:secret", True),
        (b":secret", True),
        (b"secret:", False),
        (b"secret", False),
        (b"a:secret:", False),
        (b"a:\xff", False),
    ],
)
def test_browsers_send_the_key_as_a_password(pair: bytes, opens: bool) -> None:
    """Of any user; a wrong one is asked for again."""
    header = "Basic " + base64.b64encode(pair).decode()
    if opens:
        check_admin("10.0.0.1", header, "secret")
        return
    with pytest.raises(Unauthorized) as refused:
        check_admin("10.0.0.1", header, "secret")
    assert dict(refused.value.headers)["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize("header", ["Basic", "Basic ###", "Basic \udcff", "Digest x"])
def test_broken_passwords(header: str) -> None:
    """They are wrong ones."""
    with pytest.raises(Unauthorized):
        check_admin("10.0.0.1", header, "secret")


async def test_over_http(start_gateway: StartGateway) -> None:
    """Routes that change something are closed to other sites' forms."""
    gateway = await start_gateway("http://127.0.0.1:1")
    url = gateway.url + "/gateway/workers"
    headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    body = b'{"url": "http://127.0.0.1:2"}'
    async with gateway.client.post(url, data=body, headers=headers) as response:
        assert response.status == 403
    assert len((await gateway.get("/gateway/workers"))["workers"]) == 1
    await gateway.get("/gateway/workers", 403, headers={"Host": "evil.example"})
