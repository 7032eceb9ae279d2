"""Clients with keys at a whole gateway: who is let in, how often, and what they see."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.access.api_keys import ApiKey, as_toml, hash_of
from gateway.access.credentials import Credentials
from gateway.errors import ConfigError
from gateway.settings.config import Config
from tests.proxy.conftest import serve as gateway_for
from tests.proxy.raw import (
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    WorkerConnection,
    answering,
    chunk,
    event,
    json_answer,
)
from tests.running import MODEL, Running, StartGateway, StartWorker, until

KEY = "kvg-alpha-0000000000000000"
OTHER_KEY = "kvg-beta-00000000000000000"
FINE = json_answer(b'{"fine": true}')
CHAT: Mapping[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 4,
}


def keys_file(directory: Path, **limits: int) -> Path:
    """A file with the keys of alpha, limited like this, and of beta."""
    path = directory / "keys.toml"
    alpha = ApiKey(name="alpha", hash=hash_of(KEY), **limits)
    beta = ApiKey(name="beta", hash=hash_of(OTHER_KEY))
    path.write_text(as_toml(alpha) + as_toml(beta))
    return path


def bearer(key: str) -> dict[str, str]:
    """The header that carries a key."""
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
async def gateway(
    start_worker: StartWorker, start_gateway: StartGateway, tmp_path: Path
) -> Running:
    """A gateway in front of a simulated worker, for clients with keys."""
    path = keys_file(tmp_path)
    return await start_gateway(await start_worker(), api_keys_file=path)


async def test_without_a_key_nothing_is_answered_but_probes(gateway: Running) -> None:
    """401 in OpenAI's shape on every other route, those that are not there, too."""
    for path in ("/health", "/ready", "/metrics", "/gateway/workers"):
        async with gateway.client.get(gateway.url + path) as response:
            assert response.status == 200
    requests = [
        ("GET", "/v1/models"), ("GET", "/server_info"), ("GET", "/v1/none"),
        ("GET", "/none"), ("POST", "/v1/chat/completions"), ("POST", "/tokenize"),
        ("POST", "/v1/chat/completions/render"), ("POST", "/v1/responses"),
        ("PUT", "/v1/chat/completions"), ("POST", "/v1/embeddings"),
    ]  # fmt: skip
    for method, path in requests:
        for headers, code in (({}, None), (bearer("kvg-wrong"), "invalid_api_key")):
            async with gateway.client.request(
                method, gateway.url + path, json=CHAT, headers=headers
            ) as response:
                assert response.status == 401, path
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert response.headers["Server"] == "kv-gateway"
                error = (await response.json())["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["type"] == "invalid_request_error"
            assert (error["param"], error["code"]) == (None, code)
            assert "kvg-wrong" not in error["message"]
    refused = {"missing": len(requests), "wrong": len(requests)}
    for reason, count in refused.items():
        assert await gateway.metric("refused_keys_total", reason=reason) == count


async def test_openai_and_anthropic_clients_get_in(gateway: Running) -> None:
    """By the header of either; a wrong key is openai's AuthenticationError."""
    url = f"{gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY) as client:
        answer = await client.chat.completions.create(**CHAT)
        assert answer.choices[0].message.content
        assert [model.id async for model in client.models.list()] == [MODEL]
    async with openai.AsyncOpenAI(base_url=url, api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.chat.completions.create(**CHAT)
        assert refused.value.code == "invalid_api_key"
    for path in ("/v1/models", "/server_info"):
        await gateway.get(path, headers={"x-api-key": OTHER_KEY})
        await gateway.get(path, 401, headers={"x-api-key": "wrong"})
    assert await gateway.metric("client_requests_total", client="alpha") == 1
    assert await gateway.metric("client_requests_total", client="beta") == 0


async def test_a_rate_that_is_used_up(
    start_worker: StartWorker, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """429 in OpenAI's shape; answers before it tell how much is left."""
    path = keys_file(tmp_path, requests_per_minute=3)
    gateway = await start_gateway(await start_worker(), api_keys_file=path)
    url = f"{gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        left = []
        for _ in range(3):
            raw = await client.chat.completions.with_raw_response.create(**CHAT)
            assert raw.headers["x-ratelimit-limit-requests"] == "3"
            left.append(raw.headers["x-ratelimit-remaining-requests"])
        assert left == ["2", "1", "0"]
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**CHAT)
        assert refused.value.code == "rate_limit_exceeded"
        assert refused.value.type == "requests"
        headers = refused.value.response.headers
        assert 0 < int(headers["Retry-After"]) <= 20
        assert 0 < int(headers["retry-after-ms"]) <= 20_000
        assert headers["x-ratelimit-remaining-requests"] == "0"
        await client.models.list()  # uses nothing up
    async with openai.AsyncOpenAI(base_url=url, api_key=OTHER_KEY) as other:
        await other.chat.completions.create(**CHAT)
    series = "client_requests_total"
    assert await gateway.metric(series, client="alpha", outcome="taken") == 3
    assert await gateway.metric(series, client="alpha", outcome="rate") == 1
    assert await gateway.metric(series, client="beta", outcome="taken") == 1


async def test_requests_in_flight_end_with_their_streams(tmp_path: Path) -> None:
    """A stream holds its place until it ends, or its client leaves."""
    go_on = asyncio.Event()

    async def script(connection: WorkerConnection) -> None:
        while await connection.request():
            await connection.send(SSE_HEAD + chunk(event(1)))
            await go_on.wait()
            await connection.send(LAST_CHUNK)

    path = keys_file(tmp_path, max_inflight=1)
    header = f"Authorization: Bearer {KEY}".encode()
    async with (
        RawWorker(script) as worker,
        gateway_for(worker, api_keys_file=path) as gateway,
        RawClient(gateway.port) as other,
    ):
        async with RawClient(gateway.port) as client:
            await client.post(b"{}", header)
            await client.head()
            await other.post(b"{}", header)
            head, body = await other.answer()
            assert head.startswith(b"HTTP/1.1 429 ")
            assert b"\r\nRetry-After: 1\r\n" in head
            assert b'"code":"rate_limit_exceeded"' in body
        keyring = gateway.real.access.clients._keyring
        assert keyring is not None
        alpha = keyring.clients[0].limits
        await until(lambda: alpha.inflight == 0)  # it left
        go_on.set()
        for _ in range(2):
            await other.post(b"{}", header)
            assert (await other.answer())[0].startswith(b"HTTP/1.1 200 ")
        await until(lambda: alpha.inflight == 0)


async def test_the_clients_key_stays_here(tmp_path: Path) -> None:
    """The worker's goes along in its place: whatever header the client's came by."""
    path = keys_file(tmp_path)
    headers = (
        (f"Authorization: Bearer {KEY}".encode(),),
        (f"x-api-key: {KEY}".encode(),),
        (f"Authorization: bearer {KEY}".encode(), b"X-Api-Key: another"),
        (f"authorization: Bearer {KEY}".encode(), b"Authorization: Bearer second"),
    )
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(
            worker, api_keys_file=path, worker_api_key="sk-the-workers"
        ) as gateway,
        RawClient(gateway.port) as client,
    ):
        for sent in headers:
            await client.post(b"{}", *sent)
            assert (await client.answer())[0].startswith(b"HTTP/1.1 200 ")
            reached = worker.requests[-1].lower()
            assert b"kvg-" not in reached
            assert b"another" not in reached
            assert b"second" not in reached
            assert reached.count(b"authorization:") == 1
            assert b"\r\nauthorization: bearer sk-the-workers\r\n" in reached


async def test_a_workers_own_key_comes_first() -> None:
    """That of its entry in the workers file, before --worker-api-key."""
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(worker, worker_auth="replace", worker_api_key="all") as gateway,
        RawClient(gateway.port) as client,
    ):
        (known,) = gateway.real.pool.workers
        known.api_key = "its-own"
        await client.post(b"{}", b"Authorization: Bearer the-clients")
        await client.answer()
        assert b"\r\nAuthorization: Bearer its-own\r\n" in worker.requests[-1]
        assert b"the-clients" not in worker.requests[-1]


async def test_without_keys_nothing_changes() -> None:
    """The client's own Authorization passes, and no worker's key is added."""
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(worker, worker_api_key="for-polls") as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(b"{}", b"Authorization: Bearer sk-own", b"x-api-key: k")
        head, _ = await client.answer()
        await client.post(b"{}")
        await client.answer()
        first, second = worker.requests
        assert b"\r\nAuthorization: Bearer sk-own\r\nx-api-key: k\r\n" in first
        assert b"uthorization" not in second
        assert b"ratelimit" not in head


def test_keys_of_ours_are_never_handed_on() -> None:
    """--worker-auth pass beside a key file is a mistake."""
    config = Config(api_keys_file=Path("keys.toml"), worker_auth="pass")
    with pytest.raises(ConfigError, match="--worker-auth pass would hand"):
        Credentials.of(config)


async def test_keys_are_in_no_log_and_no_metric(
    gateway: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Names are; and those of the file only."""
    caplog.set_level(logging.DEBUG)
    for key in (KEY, "kvg-unknown"):
        async with gateway.client.post(
            gateway.url + "/v1/chat/completions", json=CHAT, headers=bearer(key)
        ) as response:
            await response.read()
    page = "\n".join(await gateway.metrics())
    assert 'client="alpha"' in page
    for text in (page, caplog.text):
        assert "kvg-" not in text
        assert "sha256:" not in text


async def test_metrics_behind_a_key(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Of their own: as a bearer token or a password, on loopback as elsewhere."""
    gateway = await start_gateway(
        await start_worker(), metrics_key="see", admin_key="steer"
    )
    for status, headers in (
        (401, {}),
        (401, bearer("steer")),
        (200, bearer("see")),
        (200, {"Authorization": "Basic YW55Ym9keTpzZWU="}),
    ):
        async with gateway.client.get(
            gateway.url + "/metrics", headers=headers
        ) as response:
            assert response.status == status
    await gateway.get("/health")


async def test_headers_that_would_choose_for_the_worker() -> None:
    """A client's word for where a request, or its cache, is does not go along."""
    sent = (
        b"X-data-parallel-rank: 3", b"x-prefiller-host-port: evil:80",
        b"x-gateway-destination-endpoint: evil:80", b"X-SMG-Target-Worker: 1",
        b"x-encoder-hosts-ports: evil:80", b"x-data-parallel-host-port: evil:80",
    )  # fmt: skip
    async with (
        RawWorker(answering(FINE)) as worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.post(b"{}", b"X-Session-ID: s", *sent)
        await client.answer()
        reached = worker.requests[-1]
        assert b"\r\nX-Session-ID: s\r\n" in reached
        assert b"evil" not in reached
        for header in sent:
            name = header.partition(b":")[0].lower()
            assert name not in reached.lower(), name
