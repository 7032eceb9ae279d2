"""The live page over HTTP: its files, its guard, what it tells of late."""

import re
from importlib.resources import files

import pytest

from gateway.admin.page.routes import FILES
from tests.running import MODEL, SIM, StartGateway, StartWorker

SECRET = "A word that no page may show: heliotrope."


@pytest.mark.parametrize("part", list(FILES))
async def test_each_file(part: str, start_gateway: StartGateway) -> None:
    """It is what is packaged, says what it is, and may ask other hosts nothing."""
    name, content_type = FILES[part]
    gateway = await start_gateway("http://127.0.0.1:1")
    async with gateway.client.get(gateway.url + "/gateway/" + part) as response:
        assert response.status == 200
        body = await response.read()
        headers = response.headers
    assert body == files("gateway.admin.page").joinpath(name).read_bytes()
    assert headers["Content-Type"] == content_type
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_no_file_asks_another_host() -> None:
    """No address, no inline script or style: the policy would forbid them."""
    for name, _ in FILES.values():
        text = files("gateway.admin.page").joinpath(name).read_text()
        text = text.replace("http://www.w3.org/2000/svg", "")  # a name, no address
        assert not re.search(r"//[\w.-]+\.\w|@import|url\(|\bstyle=|\bon\w+=", text)
        assert "innerHTML" not in text
        assert len(text.splitlines()) < 300


async def test_without_the_slash(start_gateway: StartGateway) -> None:
    """It leads to the page, by a path that holds behind a prefix."""
    gateway = await start_gateway("http://127.0.0.1:1")
    url = gateway.url + "/gateway"
    async with gateway.client.get(url, allow_redirects=False) as response:
        assert response.status == 308
        assert response.headers["Location"] == "gateway/"
    async with gateway.client.get(url) as response:
        assert response.status == 200
        assert response.url.path == "/gateway/"


@pytest.mark.parametrize("path", ["", "/", "/page.js", "/page.css", "/recent"])
async def test_the_guard(path: str, start_gateway: StartGateway) -> None:
    """A browser that is led here by another name is asked for the key."""
    gateway = await start_gateway("http://127.0.0.1:1", admin_key="secret")
    url, host = f"{gateway.url}/gateway{path}", {"Host": "gateway.example"}
    async with gateway.client.get(url, headers=host) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Basic ")
    key = {"Authorization": "Basic OnNlY3JldA=="} | host
    async with gateway.client.get(url, headers=key, allow_redirects=False) as response:
        assert response.status in (200, 308)
    async with gateway.client.post(url) as response:
        assert response.status == 405


async def test_what_happened_of_late(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Decisions, the last one first, and hit tokens; never a word of a prompt."""
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    messages = [{"role": "user", "content": SECRET * 10}]
    first = await gateway.chat(messages)
    second = await gateway.chat(messages)
    page = await gateway.get("/gateway/recent")
    later, earlier = page["decisions"]
    assert later["worker"] == earlier["worker"] == worker.url
    assert later["end"] == earlier["end"] == "finished"
    assert later["delivered_hit_tokens"] == second.cached > 0
    assert earlier["prompt_tokens"] == first.body["usage"]["prompt_tokens"]
    assert later["why"].startswith("the only candidate: ")
    assert 0 <= later["ago_s"] <= earlier["ago_s"] < 60
    for key, tokens in (
        ("prompt_tokens", 2 * earlier["prompt_tokens"]),
        ("delivered_hit_tokens", second.cached),
    ):
        assert sum(slot[key] for slot in page["slots"]) == tokens
    async with gateway.client.get(gateway.url + "/gateway/recent") as response:
        assert "heliotrope" not in await response.text()


async def test_a_failure_is_told(start_gateway: StartGateway) -> None:
    """A worker that is not there: the decision ended with that word."""
    gateway = await start_gateway("http://127.0.0.1:1")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    async with gateway.client.post(
        gateway.url + "/v1/chat/completions", json=body
    ) as response:
        assert response.status >= 500
    page = await gateway.get("/gateway/recent")
    assert [decision["end"] for decision in page["decisions"]] == ["connect"]
    assert page["slots"] == []
