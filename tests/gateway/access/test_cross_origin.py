"""Pages of other origins: what a browser is told that they may ask, and read."""

from pathlib import Path

import pytest

from gateway.settings.config import Config
from gateway.settings.options import options_of
from tests.gateway.access.test_clients import KEY, keys_file
from tests.gateway.endpoints.derender_rig import REQUEST, STREAM, engine_stream
from tests.gateway.endpoints.derender_rig import event as event_of
from tests.proxy.conftest import serve as gateway_for
from tests.proxy.raw import (
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    answering,
    chunk,
    event,
    json_answer,
)
from tests.running import StartGateway, StartWorker

PAGE = "https://app.example"
OTHER = "https://other.example"
LIST = ((PAGE, "http://[::1]:3000"),)
ANY = (("*",),)
ASKED = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}
OF_VLLM = (
    b"Access-Control-Allow-Origin: *",
    b"access-control-allow-credentials: true",
    b"Vary: Accept-Encoding",
)
BODY = b'{"model":"m","messages":[]}'


def lines_of(head: bytes) -> list[str]:
    """The lines of a head that speak of origins, in lower case and in order."""
    lines = head.decode().lower().split("\r\n")
    return sorted(x for x in lines if x.startswith(("access-control-allow", "vary")))


async def ask(client: RawClient, origin: str | None, method: str = "POST") -> bytes:
    """The head of the answer to a chat of a page."""
    said = f"Origin: {origin}\r\n" if origin else ""
    line = f"{method} /v1/chat/completions HTTP/1.1\r\nHost: g\r\n{said}"
    await client.send(f"{line}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
    head, _ = await client.answer()
    return head


async def test_preflights_are_answered_without_a_key(
    start_worker: StartWorker, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """204 with what was asked for; what the page asks then needs the key, as ever."""
    gateway = await start_gateway(
        await start_worker(), api_keys_file=keys_file(tmp_path), allowed_origins=LIST
    )
    asks = ASKED | {"Origin": PAGE}
    paths = (
        "/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/responses",
        "/v1/embeddings", "/v1/chat/completions/render", "/tokenize", "/v1/models/a",
    )  # fmt: skip
    for path in paths:
        url = gateway.url + path
        async with gateway.client.options(url, headers=asks) as response:
            assert response.status == 204, path
            told = response.headers
            assert told["Access-Control-Allow-Origin"] == PAGE
            assert told["Access-Control-Allow-Methods"] == "POST"
            wanted = ASKED["Access-Control-Request-Headers"]
            assert told["Access-Control-Allow-Headers"] == wanted
            assert told["Access-Control-Max-Age"] == "600"
            assert "Origin" in told.getall("Vary")
            assert "X-Request-ID" in told
    url = gateway.url + "/v1/models"
    async with gateway.client.get(url, headers={"Origin": PAGE}) as response:
        assert response.status == 401
        assert response.headers.getall("Access-Control-Allow-Origin") == [PAGE]
    bearing = {"Origin": PAGE, "Authorization": f"Bearer {KEY}"}
    async with gateway.client.get(url, headers=bearing) as response:
        assert response.status == 200
        assert response.headers.getall("Access-Control-Allow-Origin") == [PAGE]
        assert "X-Request-ID" in response.headers["Access-Control-Expose-Headers"]
    for headers in (ASKED | {"Origin": OTHER}, ASKED, {"Origin": PAGE}):
        async with gateway.client.options(url, headers=headers) as response:
            assert response.status == 401
            assert "Access-Control-Allow-Methods" not in response.headers


@pytest.mark.parametrize("admin_port", [None, 0])
async def test_routes_of_operators_tell_nothing(
    start_worker: StartWorker, start_gateway: StartGateway, admin_port: int | None
) -> None:
    """Whether they are on this port or not; nor do probes and closed routes."""
    gateway = await start_gateway(
        await start_worker(), allowed_origins=ANY, admin_port=admin_port
    )
    paths = (
        "/gateway/", "/gateway/workers", "/gateway/none", "/metrics", "/health",
        "/v1/load_lora_adapter", "/v1/%2e%2e/gateway/workers", "/sleep",
    )  # fmt: skip
    for path in paths:
        for method in ("GET", "OPTIONS"):
            async with gateway.client.request(
                method, gateway.url + path, headers=ASKED | {"Origin": PAGE}
            ) as response:
                assert response.status != 204
                told = [name.lower() for name in response.headers]
                assert not [n for n in told if n.startswith("access-control")], path


async def test_without_the_option_all_is_as_the_worker_says() -> None:
    """No word of ours: neither on a preflight nor on an answer."""
    worker = RawWorker(answering(json_answer(b"{}", *OF_VLLM)))
    async with (
        worker,
        gateway_for(worker) as gateway,
        RawClient(gateway.port) as client,
    ):
        assert lines_of(await ask(client, PAGE)) == [
            "access-control-allow-credentials: true",
            "access-control-allow-origin: *",
            "vary: accept-encoding",
        ]
        head = await ask(client, PAGE, "OPTIONS")
        assert head.startswith(b"HTTP/1.1 405 ")
        assert lines_of(head) == []


STREAM_HEAD = SSE_HEAD.replace(
    b"\r\n\r\n", b"\r\n" + b"\r\n".join(OF_VLLM) + b"\r\n\r\n"
)
ANSWERS = [
    json_answer(b"{}", *OF_VLLM),
    json_answer(b"{}", *OF_VLLM, status=b"400 Bad Request"),
    STREAM_HEAD + chunk(event(1)) + LAST_CHUNK,
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_a_worker_says_of_origins_is_replaced(answer: bytes) -> None:
    """Never two of them, which a browser takes for none; what else varies stays."""
    varies = ["vary: accept-encoding", "vary: origin"]
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker, allowed_origins=LIST) as gateway,
        RawClient(gateway.port) as client,
    ):
        allowed = [f"access-control-allow-origin: {PAGE}", *varies]
        assert lines_of(await ask(client, PAGE)) == allowed
        for origin in (OTHER, None, "null", PAGE + ":444", PAGE + ".evil.example"):
            assert lines_of(await ask(client, origin)) == varies
    async with (
        RawWorker(answering(answer)) as worker,
        gateway_for(worker, allowed_origins=ANY) as gateway,
        RawClient(gateway.port) as client,
    ):
        anyone = ["access-control-allow-origin: *", "vary: accept-encoding"]
        assert lines_of(await ask(client, OTHER)) == anyone
        assert lines_of(await ask(client, None)) == anyone


async def test_errors_of_the_gateway_can_be_read() -> None:
    """Where no worker is left, too: else a page only learns that something failed."""
    async with RawWorker(answering()) as gone:
        pass
    async with (
        gateway_for(gone, allowed_origins=LIST) as gateway,
        RawClient(gateway.port) as client,
    ):
        head = await ask(client, PAGE)
        assert head.startswith(b"HTTP/1.1 502 ")
        told = [f"access-control-allow-origin: {PAGE}", "vary: origin"]
        assert lines_of(head) == told
        head = await ask(client, PAGE, "PUT")
        assert head.startswith(b"HTTP/1.1 405 ")
        assert lines_of(head) == told


async def test_streams_of_our_own_can_be_read(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """One that does not come from a worker has its head written by itself."""
    gateway = await start_gateway(await start_worker(), allowed_origins=ANY)
    events = event_of(REQUEST) + b"".join(engine_stream([1, 2, 3], 1))
    async with gateway.client.post(
        gateway.url + STREAM, data=events, headers={"Origin": PAGE}
    ) as response:
        assert response.status == 200
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert response.headers.getall("Access-Control-Allow-Origin") == ["*"]


async def test_what_is_asked_for_is_no_header_of_its_own() -> None:
    """Names that are none are not repeated."""
    async with (
        RawWorker(answering()) as worker,
        gateway_for(worker, allowed_origins=ANY) as gateway,
        RawClient(gateway.port) as client,
    ):
        await client.send(
            b"OPTIONS /v1/models HTTP/1.1\r\nHost: g\r\nOrigin: https://a\r\n"
            b"Access-Control-Request-Method: GET;\r\n"
            b"Access-Control-Request-Headers: a\xff\r\n\r\n"
        )
        head = await client.head()
        assert head.startswith(b"HTTP/1.1 204 ")
        assert lines_of(head)[0] == "access-control-allow-origin: *"
        assert b"Allow-Methods" not in head
        assert b"Allow-Headers" not in head


OPTION = next(o for o in options_of(Config) if o.name == "allowed_origins")


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("*", ("*",)),
        ("https://App.Example, http://localhost:3000", None),
        ("http://a:80,https://a:443", ("http://a", "https://a")),
        ("https://a:80,http://[::1]:8080", ("https://a:80", "http://[::1]:8080")),
        ("tauri://localhost", ("tauri://localhost",)),
    ],
)
def test_origins(text: str, origins: tuple[str, ...] | None) -> None:
    """They are compared as browsers write them: lower case, no port that is usual."""
    expected = origins or ("https://app.example", "http://localhost:3000")
    assert OPTION.from_text(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ",", "null", "a.example", "https://", "https://a/", "https://a/b", "http://a:",
     "http://a:0", "http://a:65536", "https://*.a", "https://u@a", "https://a\nb",
     "**", '["*"]', "https://é"],
)  # fmt: skip
def test_what_is_no_origin(text: str) -> None:
    """It is told at start, not by a page that does not work."""
    with pytest.raises(ValueError, match=r"SCHEME://HOST\[:PORT\]"):
        OPTION.parse(text)  # type: ignore[misc]
