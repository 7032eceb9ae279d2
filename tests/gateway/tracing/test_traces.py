"""A gateway's spans as a collector gets them, and what its workers are told."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.gateway.answering import Scripted
from tests.gateway.render_rig import StartRenderServer
from tests.gateway.scripted import ANSWER, CHAT, refusal, worker
from tests.gateway.tokens.rig import TOKENS
from tests.gateway.tracing.collector import Collector
from tests.proxy.raw import RawWorker
from tests.running import MODEL, Running, StartGateway, StartWorker

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"00-{TRACE}-{PARENT}-00"
SECRET = "the-secret-of-the-prompt"
MESSAGES = [{"role": "user", "content": f"{SECRET} " * 40}]
STEPS = ("POST /v1/chat/completions", "render", "admit", "decide", "chat")


async def _stream(gateway: Running, **headers: str) -> bytes:
    body = {
        "model": MODEL,
        "messages": MESSAGES,
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=body, headers=headers) as response:
        assert response.status == 200
        return await response.read()


def _headers(sent: bytes) -> dict[str, list[str]]:
    """The headers of a request as a worker got it."""
    found: dict[str, list[str]] = {}
    for line in sent.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
        name, _, value = line.partition(": ")
        found.setdefault(name.lower(), []).append(value)
    return found


def _posted(raw: RawWorker) -> dict[str, list[str]]:
    """The headers of the last inference request that it got."""
    return _headers([sent for sent in raw.requests if sent.startswith(b"POST")][-1])


def _sampled(traceparent: str) -> bool:
    return bool(int(traceparent[-2:], 16) & 1)


async def _ask(gateway: Running, headers: list[tuple[str, str]]) -> int:
    url = gateway.url + "/v1/chat/completions"
    async with gateway.client.post(url, json=CHAT, headers=headers) as response:
        await response.read()
        return response.status


async def test_a_streamed_chat(
    collector: Collector, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Each step is a span in the client's trace, with numbers, and no prompt."""
    sim = await start_worker()
    gateway = await start_gateway(sim, otlp_endpoint=collector.endpoint)
    await _stream(gateway, traceparent=SAMPLED, tracestate="vendor=1")
    spans = await collector.until_it_has(*STEPS, "upstream wait", "stream")
    server, chat = spans[STEPS[0]], spans["chat"]
    assert len(collector.spans) == 7
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert server.parent_id == PARENT
    assert server.kind == "SPAN_KIND_SERVER"
    for name in STEPS[1:]:
        assert spans[name].parent_id == server.span_id, name
    for name in ("upstream wait", "stream"):
        assert spans[name].parent_id == chat.span_id, name
    order = [spans[name] for name in ("render", "decide", "upstream wait", "stream")]
    for first, then in itertools.pairwise(order):
        assert first.begin <= first.end <= then.begin
    assert chat.begin <= spans["upstream wait"].begin
    assert spans["stream"].end <= chat.end <= server.end
    _check_attributes(server.attributes, chat.attributes, sim.url)
    assert collector.resource["service.name"] == "kv-gateway"
    assert SECRET.encode() not in collector.raw
    for _ in range(100):  # they are counted once the answer has come
        if await gateway.metric("spans_exported_total") == 7:
            break
        await asyncio.sleep(0.05)
    assert await gateway.metric("spans_exported_total") == 7
    assert await gateway.metric("spans_dropped_total") == 0


def _check_attributes(
    server: dict[str, Any], chat: dict[str, Any], worker_url: str
) -> None:
    assert server["http.request.method"] == "POST"
    assert server["http.route"] == "/v1/chat/completions"
    assert server["http.response.status_code"] == 200
    assert len(server["kv_gateway.request_id"]) == 32
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.stream": True,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "server.address": "127.0.0.1",
        "server.port": int(worker_url.rpartition(":")[2]),
        "http.response.status_code": 200,
        "kv_gateway.worker": worker_url,
        "kv_gateway.rank": 0,
        "kv_gateway.hit_tokens": 0,
        "kv_gateway.best_hit_tokens": 0,
    }
    assert {key: chat.get(key) for key in expected} == expected
    assert chat["gen_ai.usage.input_tokens"] == chat["kv_gateway.prompt_tokens"] > 200
    assert chat["kv_gateway.why"]
    assert "error.type" not in chat


async def test_the_worker_continues_the_trace(
    collector: Collector, start_gateway: StartGateway
) -> None:
    """It gets the attempt's span as its parent, the client's tracestate, and once."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, otlp_endpoint=collector.endpoint)
        headers = [("Traceparent", SAMPLED), ("TraceState", "a=1,b=2")]
        assert await _ask(gateway, headers) == 200
        sent = _posted(raw)
        spans = await collector.until_it_has("chat")
        assert sent["traceparent"] == [f"00-{TRACE}-{spans['chat'].span_id}-01"]
        assert sent["tracestate"] == ["a=1,b=2"]


async def test_a_trace_of_our_own(
    collector: Collector, start_gateway: StartGateway
) -> None:
    """Without a client's trace, or with broken or several ones, a new one begins."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, otlp_endpoint=collector.endpoint)
        for headers in (
            [],
            [("traceparent", "00-broken-01"), ("tracestate", "a=1")],
            [("traceparent", SAMPLED), ("traceparent", SAMPLED)],
        ):
            collector.spans.clear()
            assert await _ask(gateway, headers) == 200
            sent = _posted(raw)
            spans = await collector.until_it_has("POST", "chat")
            trace = spans["POST"].trace_id
            assert trace != TRACE
            assert spans["POST"].parent_id == ""
            (told,) = sent["traceparent"]
            assert told[:-2] == f"00-{trace}-{spans['chat'].span_id}-"
            assert _sampled(told)
            assert "tracestate" not in sent


async def test_a_client_that_does_not_sample(
    collector: Collector, start_gateway: StartGateway
) -> None:
    """Its trace goes on to the worker, not sampled either; nothing is exported."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, otlp_endpoint=collector.endpoint)
        assert await _ask(gateway, [("traceparent", NOT_SAMPLED)]) == 200
        (sent,) = _posted(raw)["traceparent"]
        assert sent.startswith(f"00-{TRACE}-")
        assert sent.endswith("-00")
        assert await _ask(gateway, [("traceparent", SAMPLED)]) == 200
        await collector.until_it_has("POST")
        assert len(collector.named("POST")) == 1


async def test_the_sampler_of_the_environment(
    collector: Collector, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTEL_TRACES_SAMPLER decides where the client does not."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "front door")
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url)
        assert await _ask(gateway, []) == 200
        assert not _sampled(_posted(raw)["traceparent"][0])
        assert await _ask(gateway, [("traceparent", SAMPLED)]) == 200
        await collector.until_it_has("POST")
    assert len(collector.named("POST")) == 1
    assert collector.headers[-1]["x-tenant"] == "blue"
    assert collector.resource["service.name"] == "front door"


async def test_without_traces_the_header_is_the_clients(
    start_gateway: StartGateway,
) -> None:
    """Off, it passes byte for byte, whatever is in it; and none is made up."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url)
        assert await _ask(gateway, [("TraceParent", "whatever it is")]) == 200
        assert b"TraceParent: whatever it is\r\n" in raw.requests[-1]
        assert await _ask(gateway, []) == 200
        assert "traceparent" not in _posted(raw)


async def test_a_second_worker(
    collector: Collector, start_gateway: StartGateway
) -> None:
    """Each attempt is a span: that of the busy worker is an error, with its status."""
    async with worker(refusal(b"503 Busy")) as busy, worker(ANSWER) as free:
        gateway = await start_gateway(
            busy.url, free.url, otlp_endpoint=collector.endpoint, policy="round_robin"
        )
        for _ in range(2):
            assert await _ask(gateway, []) == 200
        await collector.until_it_has("POST")
    attempts = {
        span.attributes["kv_gateway.worker"]: span
        for span in collector.spans
        if span.name.startswith("chat")
    }
    first, second = attempts[busy.url], attempts[free.url]
    assert (first.failed, first.attributes["error.type"]) == (True, "busy")
    assert first.attributes["http.response.status_code"] == 503
    assert not second.failed


async def test_nobody_to_ask(collector: Collector, start_gateway: StartGateway) -> None:
    """A request that no worker answers is an error; its attempt says which."""
    gateway = await start_gateway(
        "http://127.0.0.1:9", otlp_endpoint=collector.endpoint
    )
    assert await _ask(gateway, []) == 502
    spans = await collector.until_it_has("POST", "chat")
    assert spans["POST"].failed
    assert spans["POST"].attributes["error.type"] == "502"
    assert spans["chat"].attributes["error.type"] == "connect"


async def test_probes_are_not_traced(
    collector: Collector, start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Health checks and scrapes leave no spans; a route that is closed does."""
    async with worker(ANSWER) as raw:
        gateway = await start_gateway(raw.url, otlp_endpoint=collector.endpoint)
        await gateway.get("/health")
        await gateway.metrics()
        await gateway.get("/collective_rpc", status=404)
        await collector.until_it_has("GET")
    assert [span.attributes["kv_gateway.endpoint"] for span in collector.spans] == [
        "other"
    ]


async def test_a_worker_that_takes_ids_only(
    collector: Collector, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The same spans, the same usage."""
    sim = await start_worker(TOKENS)
    gateway = await start_gateway(sim, otlp_endpoint=collector.endpoint)
    await _stream(gateway, traceparent=SAMPLED)
    spans = await collector.until_it_has(*STEPS, "upstream wait", "stream")
    assert len(collector.spans) == 7
    assert spans["chat"].attributes["gen_ai.usage.output_tokens"] == 8
    assert spans["upstream wait"].end <= spans["stream"].begin
    assert SECRET.encode() not in collector.raw


async def test_a_render_server(
    collector: Collector, start_render_server: StartRenderServer
) -> None:
    """Its requests are spans, too: of the rendering, in the client's trace."""
    server = await start_render_server(otlp_endpoint=collector.endpoint)
    body = {"model": MODEL, "messages": MESSAGES}
    url = server.url + "/v1/chat/completions/render"
    headers = {"traceparent": SAMPLED}
    async with server.client.post(url, json=body, headers=headers) as response:
        assert response.status == 200
    spans = await collector.until_it_has("POST", "render")
    assert spans["POST"].name == "POST /v1/chat/completions/render"
    assert spans["render"].parent_id == spans["POST"].span_id
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert SECRET.encode() not in collector.raw
