"""The routes: what is answered here, what is passed on, what is refused."""

import contextlib
import json
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from tests.proxy.raw import RawClient, RawWorker, answering, json_answer
from tests.running import MODEL, SIM, StartGateway, StartWorker

CHAT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 4,
    "messages": [{"role": "user", "content": "hello"}],
}
OWN_GETS = ("/v1/models", "/health", "/ready", "/metrics", "/gateway/index")
OWN_POSTS = ("/v1/chat/completions", "/v1/completions", "/gateway/explain")
DEAD = "http://127.0.0.1:1"

pytestmark = pytest.mark.usefixtures("never_blocks")


async def test_models_are_the_union(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Every model once, as its first worker lists it, dead workers aside.

    vllm-project/router#135
    """
    for_both = await start_worker(
        msgspec.structs.replace(SIM, served_model_name=("both", "one"))
    )
    other = await start_worker(
        msgspec.structs.replace(SIM, served_model_name=("both", "two"))
    )
    gateway = await start_gateway(DEAD, for_both, other)
    listing = await gateway.get("/v1/models")
    assert listing["object"] == "list"
    assert [entry["id"] for entry in listing["data"]] == ["both", "one", "two"]
    async with gateway.client.get(for_both.url + "/v1/models") as response:
        direct = (await response.json())["data"][0]
    assert listing["data"][0].keys() == direct.keys()
    assert listing["data"][0]["owned_by"] == "vllm"
    assert listing["data"][0]["max_model_len"] == direct["max_model_len"]


async def test_forms_go_where_their_model_is(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Audio is a form: `curl` sends the file before the model, libraries after it."""
    names = [("reads",), ("hears",)]
    workers = [
        await start_worker(msgspec.structs.replace(SIM, served_model_name=name))
        for name in names
    ]
    gateway = await start_gateway(*workers, policy="round_robin")
    for model_first in (True, False) * 2:
        form = aiohttp.FormData()
        fields = [("model", "hears"), ("language", "en")]
        for name, value in fields if model_first else ():
            form.add_field(name, value)
        form.add_field("file", b"RIFF" * 50_000, filename="a.wav")
        for name, value in () if model_first else fields:
            form.add_field(name, value)
        url = f"{gateway.url}/v1/audio/transcriptions"
        async with gateway.client.post(url, data=form) as response:
            assert response.status == 404  # the simulated worker's: it is deaf
    went = [await gateway.metric("attempts_total", worker=w.url) for w in workers]
    assert went == [0, 4]


@pytest.mark.parametrize("path", ["a/b", "a%2Fb", "a%2fb?x=1"])
async def test_one_model(
    start_worker: StartWorker, start_gateway: StartGateway, path: str
) -> None:
    """As it is listed, by whichever worker; OpenAI's error for what none lists."""
    first = await start_worker()
    second = await start_worker(
        msgspec.structs.replace(SIM, served_model_name=("a/b",))
    )
    gateway = await start_gateway(first, second)
    listed = (await gateway.get("/v1/models"))["data"][1]
    url = URL(f"{gateway.url}/v1/models/{path}", encoded=True)
    async with gateway.client.get(url) as response:
        assert (response.status, await response.json()) == (200, listed)
    assert listed["id"] == "a/b"
    refused = (await gateway.get("/v1/models/a", 404))["error"]
    assert refused == {
        "message": "no model 'a' is listed here",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_ready_once_a_worker_is(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Alive at once, ready only with a worker.

    sgl-project/sglang#3802
    """
    lonely = await start_gateway(DEAD)
    assert await lonely.get("/health") == {"status": "ok"}
    assert "no worker" in (await lonely.get("/ready", 503))["status"]
    assert (await lonely.get("/v1/models"))["data"] == []
    gateway = await start_gateway(await start_worker(), DEAD)
    assert await gateway.get("/ready") == {"status": "ready"}


async def test_no_worker_reachable(start_gateway: StartGateway) -> None:
    """A request that reaches nobody is a 502 in OpenAI's shape, and says why."""
    gateway = await start_gateway(DEAD)
    error = (await gateway.post("/v1/chat/completions", CHAT, 502))["error"]
    assert error["code"] == "upstream_connect_failed"
    assert error["type"] == "upstream_error"
    assert await gateway.metric("inflight_requests") == 0


@pytest.mark.parametrize(
    "path",
    ["/kv_cache_events", "/update_weights", "/collective_rpc", "/reset_prefix_cache",
     "/sleep", "/v1/load_lora_adapter", "/v1/%6coad_lora_adapter", "/load", "/version",
     "/v1/../reset_prefix_cache", "/v1/x/%2e%2e/%2e%2e/reset_prefix_cache",
     "/v1/unload_lora_adapter%23x", "/v1/unload_lora_adapter?x=1", "/kv_event_sources",
     "//reset_prefix_cache", "/gateway/nothing", "/"],
)  # fmt: skip
async def test_control_routes_are_closed(
    start_gateway: StartGateway, path: str
) -> None:
    """No spelling of a control route reaches a worker: 404."""
    async with RawWorker(answering(json_answer(b"{}"))) as worker:
        gateway = await start_gateway(worker.url, model=())
        before = len(worker.requests)
        async with RawClient(gateway.port) as client:
            await client.post(b"{}", path=path.encode())
            head, body = await client.answer()
        assert head.startswith(b"HTTP/1.1 404")
        assert json.loads(body)["error"]["code"] == "not_found"
        assert len(worker.requests) == before


async def test_proxy_path_opens_a_route(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What the operator names passes."""
    worker = await start_worker()
    gateway = await start_gateway(worker, proxy_path=("/version",))
    assert "version" in await gateway.get("/version")


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [(path, method, "GET") for path in OWN_GETS for method in ("POST", "DELETE")]
    + [(path, method, "POST") for path in OWN_POSTS for method in ("GET", "PUT")],
)
async def test_wrong_method(
    start_gateway: StartGateway, path: str, method: str, allowed: str
) -> None:
    """405, with the method that the route takes."""
    gateway = await start_gateway(DEAD)
    async with gateway.client.request(method, gateway.url + path) as response:
        assert response.status == 405
        assert response.headers["Allow"] == allowed
        assert response.headers["X-Request-ID"]
        assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_request_id(start_gateway: StartGateway) -> None:
    """Kept or made, sent to the worker, returned; also with an error.

    BerriAI/litellm#4419
    """
    async with RawWorker(answering(json_answer(b'{"data": []}'))) as worker:
        gateway = await start_gateway(worker.url, model=())
        url = gateway.url
        for path, status in (("/v1/chat/completions", 200), ("/nothing", 404)):
            for given in ("abc-1", None):
                headers = {"X-Request-ID": given} if given else {}
                async with gateway.client.post(
                    url + path, json=CHAT, headers=headers
                ) as response:
                    assert response.status == status
                    returned = response.headers.getall("X-Request-ID")
                assert len(returned) == 1
                assert returned[0] == given or (given is None and len(returned[0]) > 8)
                if status == 200:
                    sent = b"X-Request-ID: " + returned[0].encode()
                    assert worker.requests[-1].count(sent) == 1


async def test_trace_headers_pass(start_gateway: StartGateway) -> None:
    """`traceparent` reaches the worker as it came."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with RawWorker(answering(json_answer(b'{"data": []}'))) as worker:
        gateway = await start_gateway(worker.url, model=())
        headers = {"traceparent": trace, "tracestate": "a=b"}
        url = gateway.url + "/v1/chat/completions"
        async with gateway.client.post(url, json=CHAT, headers=headers) as response:
            assert response.status == 200
        assert b"traceparent: " + trace.encode() in worker.requests[-1]
        assert b"tracestate: a=b" in worker.requests[-1]


@pytest.mark.parametrize(
    "path", [b"/v1/a%20b?q=%ff&q=%E9&&", b"/v1/;x?", b"/v1/~!$&'()*+,;=:@-._%c3"]
)
async def test_odd_targets_pass_as_they_came(
    start_gateway: StartGateway, path: bytes
) -> None:
    """A path's bytes are the worker's to read, whatever they are."""
    async with RawWorker(answering(json_answer(b'{"data": []}'))) as worker:
        gateway = await start_gateway(worker.url, model=())
        async with RawClient(gateway.port) as client:
            await client.post(b"{}", path=path)
            head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200")
        assert worker.requests[-1].startswith(b"POST " + path + b" HTTP/1.1\r\n")


async def test_other_inference_paths(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """/tokenize and unknown /v1 paths go to a worker; its answers come back."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    answer = await gateway.post("/tokenize", {"model": MODEL, "prompt": "hello"})
    assert answer["count"] == len(answer["tokens"]) > 0
    await gateway.get("/v1/responses/x", 404)
    assert await gateway.metric("not_rendered_total", reason="endpoint") == 2
    assert await gateway.metric("inflight_requests") == 0


async def test_gateway_faults_are_answered(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours is a 500 with an id and a count; the text is in the log only."""
    gateway = await start_gateway(DEAD)

    def broken() -> None:
        raise RuntimeError("private")

    monkeypatch.setattr(gateway.gateway.admin, "workers", broken)
    answer = await gateway.get("/gateway/workers", 500)
    assert answer["error"]["code"] == "internal_error"
    assert "private" not in json.dumps(answer)
    assert await gateway.metric("internal_errors_total", where="handler") == 1


async def test_nothing_is_added_to_an_answer_by_a_fault(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once an answer is on its way, a bug of ours cuts it: no second one follows."""

    def broken(*args: object) -> None:
        raise RuntimeError("private")

    async with RawWorker(answering(json_answer(b"{}"))) as worker:
        gateway = await start_gateway(worker)
        monkeypatch.setattr(gateway.gateway.accounts, "settle", broken)
        async with RawClient(gateway.port) as client:
            await client.post(b"{}")
            assert (await client.answer())[1] == b"{}"
            with contextlib.suppress(ConnectionResetError):
                assert await client.rest() == b""
    assert await gateway.metric("internal_errors_total", where="handler") == 1


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        (b"OPTIONS *", "404", "not_found"),
        (b"CONNECT g:80", "405", "method_not_allowed"),
        (b"GET http://g", "404", "not_found"),
        (b"GET http://g?/v1/x", "404", "not_found"),
        (b"GET /v1/x%0a", "404", "not_found"),
        (b"GET /a%0ab", "404", "not_found"),
    ],
)
async def test_targets_without_a_route(
    start_gateway: StartGateway, line: bytes, status: str, code: str
) -> None:
    """Answered like every other: our shape, with the request's id, and counted."""
    gateway = await start_gateway(DEAD)
    async with RawClient(gateway.port) as client:
        await client.send(line + b" HTTP/1.1\r\nHost: g\r\nX-Request-ID: r1\r\n\r\n")
        head, body = await client.answer()
    assert head.startswith(b"HTTP/1.1 %b " % status.encode())
    assert b"\r\nX-Request-ID: r1\r\n" in head
    assert json.loads(body)["error"]["code"] == code
    counted = await gateway.metric("requests_total", endpoint="other", status=status)
    assert counted == 1
