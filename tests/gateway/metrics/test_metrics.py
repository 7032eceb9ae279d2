"""The metrics page: every metric is there, means what it says, and stays small."""

import asyncio
import random
import re
from typing import Any

import msgspec
import pytest
from prometheus_client.exposition import generate_latest

from gateway.metrics.registry import Metrics
from tests.running import (
    MODEL,
    WITH_EVENTS,
    Running,
    StartGateway,
    StartWorker,
    until,
)

TEXT = "Tell me about the lighthouse on the northern pier, and who kept it. " * 10
LABELS = {
    "requests_total": {"endpoint", "status"},
    "request_seconds_count": {"endpoint"},
    "first_token_seconds_count": {"worker"},
    "render_seconds_count": set(),
    "template_seconds_count": set(),
    "tokenize_seconds_count": set(),
    "match_seconds_count": set(),
    "decide_seconds_count": set(),
    "event_loop_lag_seconds_count": set(),
    "prompt_tokens_total": {"worker"},
    "reported_prompt_tokens_total": {"worker"},
    "predicted_hit_tokens_total": {"worker"},
    "best_hit_tokens_total": {"worker"},
    "delivered_hit_tokens_total": {"worker"},
    "prediction_error_tokens_total": {"worker"},
    "not_rendered_total": {"reason"},
    "inflight_requests": {"worker"},
    "inflight_uncached_tokens": {"worker"},
    "worker_state": {"worker", "state"},
    "kv_events_total": {"worker", "rank", "kind"},
    "event_gaps_total": {"worker", "rank"},
    "worker_restarts_total": {"worker", "rank"},
    "orphan_blocks_total": {"worker", "rank"},
    "feed_state": {"worker", "rank", "state"},
    "index_blocks": set(),
    "index_bytes": set(),
    "index_limit_bytes": set(),
    "index_refused_blocks_total": set(),
    "client_disconnects_total": set(),
    "spans_exported_total": set(),
    "spans_dropped_total": set(),
}


async def stream(gateway: Running, body: dict[str, Any]) -> None:
    """A whole streamed chat."""
    url = gateway.url + "/v1/chat/completions"
    fields = {"stream": True, "stream_options": {"include_usage": True}}
    async with gateway.client.post(url, json=body | fields) as response:
        assert response.status == 200
        assert (await response.read()).endswith(b"data: [DONE]\n\n")


async def test_after_some_traffic(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """All metrics with their labels, and the values that the traffic must give."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    body = {"model": MODEL, "max_tokens": 4,
            "messages": [{"role": "user", "content": TEXT}]}  # fmt: skip
    for _ in range(2):
        await stream(gateway, body)
        await gateway.until_events_arrive(worker)
    prompt = (await gateway.ask("/v1/chat/completions", body)).body["usage"]
    await gateway.ask("/v1/completions", {"model": MODEL, "prompt": "x"})
    await gateway.post("/v1/chat/completions", {"model": MODEL}, 400)
    await until(lambda: gateway.metric("event_loop_lag_seconds_count"))

    samples = await gateway.metrics()
    for name, labels in LABELS.items():
        full = "kv_gateway_" + name
        found = [s for s in samples if s.partition("{")[0] == full]
        assert found, name
        for sample in found:
            assert set(re.findall(r'[{,](\w+)="', sample)) == labels

    tokens = prompt["prompt_tokens"]
    cached = prompt["prompt_tokens_details"]["cached_tokens"]
    expected = {
        "prompt_tokens_total": 3 * tokens + 1,
        "reported_prompt_tokens_total": 3 * tokens + 1,
        "predicted_hit_tokens_total": 2 * cached,
        "best_hit_tokens_total": 2 * cached,
        "delivered_hit_tokens_total": 2 * cached,
        "prediction_error_tokens_total": 0,
        "uncompared_requests_total": 0,
        "first_token_seconds_count": 2,
        "render_seconds_count": 4,
        "tokenize_seconds_count": 4,
        "template_seconds_count": 4,
        "match_seconds_count": 5,
        "decide_seconds_count": 5,
        "inflight_requests": 0,
        "inflight_uncached_tokens": 0,
        "event_gaps_total": 0,
    }
    for name, value in expected.items():
        assert await gateway.metric(name) == value, name
    chats = {"endpoint": "chat_completions"}
    assert await gateway.metric("requests_total", status="200", **chats) == 3
    assert await gateway.metric("requests_total", status="400", **chats) == 1
    assert await gateway.metric("not_rendered_total", reason="bad_messages") == 1
    assert await gateway.metric("worker_state", state="ready") == 1
    assert await gateway.metric("worker_state") == 1
    assert await gateway.metric("feed_state", state="live") == 1
    page = await gateway.get("/gateway/index")
    assert await gateway.metric("index_blocks") == page["blocks"] > 0
    assert await gateway.metric("index_bytes") == page["bytes"] > 0
    assert 0 < await gateway.metric("kv_events_total", kind="stored") <= page["blocks"]


async def test_uncompared_requests(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A worker that does not tell its cached tokens adds to no hit counter."""
    worker = await start_worker(
        msgspec.structs.replace(WITH_EVENTS, prompt_tokens_details=False)
    )
    gateway = await start_gateway(worker)
    for _ in range(2):
        await gateway.chat([{"role": "user", "content": TEXT}])
        await gateway.until_events_arrive(worker)
    assert await gateway.metric("uncompared_requests_total") == 2
    assert await gateway.metric("prompt_tokens_total") > 0
    for name in ("predicted", "best", "delivered"):
        assert await gateway.metric(f"{name}_hit_tokens_total") == 0
    assert await gateway.metric("reported_prompt_tokens_total") == 0


async def test_clients_choose_no_label(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A thousand model names, paths and methods later there is no series more."""
    worker = await start_worker(WITH_EVENTS)
    # Its proof would come in between, and with it a series.
    gateway = await start_gateway(worker, forward_when="never")
    rng = random.Random(7)

    async def odd(number: int) -> None:
        name = f'{rng.random()}\n"{number}'
        body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
        url = gateway.url
        headers = {"X-Request-ID": str(number), "X-Data-Parallel-Rank": str(number)}
        if number % 3:
            call = gateway.client.post(f"{url}/v1/chat/completions", json=body,
                                       headers=headers)  # fmt: skip
        else:
            call = gateway.client.request(f"M{number}", f"{url}/v1/{number}")
        async with call as response:
            assert response.status in (400, 404, 405)

    for number in range(6):
        await odd(number)
    await until(lambda: gateway.metric("health_checks_total"))
    await gateway.metrics()  # its own request is counted on the next page
    before = set(await gateway.metrics())
    for number in range(1000):
        await odd(number)
    assert set(await gateway.metrics()) == before


async def test_a_large_page_is_written_in_pieces() -> None:
    """Other work goes on between its metrics, and it is the page written at once."""
    metrics = Metrics()
    for number in range(300):
        metrics.prompt_tokens.labels(f"http://w{number}").inc(number)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    page = await metrics.exposition()
    task.cancel()
    assert page == generate_latest(metrics.registry)
    assert turns >= 20


async def test_the_page_of_a_large_fleet_holds_up_nobody() -> None:
    """However many series a metric has, few samples are written in one go."""
    metrics = Metrics()
    for number in range(64):
        metrics.first_token_seconds.labels(f"http://w{number}").observe(0.1)
    page, steps, text = metrics.exposition().__await__(), 0, ""
    while not text:
        try:
            next(page)
            steps += 1
        except StopIteration as end:
            text = end.value.decode()
    lines = [line for line in text.splitlines() if "first_token_seconds" in line]
    assert [line[:6] for line in lines[:2]] == ["# HELP", "# TYPE"]
    samples = lines[2:]
    assert len(samples) == len(set(samples)) == 64 * 21
    assert not any(line.startswith("#") for line in samples)
    small = sum(1 for _ in Metrics().exposition().__await__())
    assert steps - small >= 7  # of 8 histograms each


async def test_the_page_is_prometheus_text(start_gateway: StartGateway) -> None:
    """Its content type says so, and every metric has a help and a type."""
    gateway = await start_gateway("http://127.0.0.1:1")
    async with gateway.client.get(gateway.url + "/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page = await response.text()
    names = set(re.findall(r"^([a-z_]+?)(?:_total|_bucket|_count|_sum)?(?:\{.*\})? ",
                           page, re.MULTILINE))  # fmt: skip
    helped = set(re.findall(r"^# HELP ([a-z_]+?)(?:_total)? \S", page, re.MULTILINE))
    assert names <= helped
    assert all(name.startswith("kv_gateway_") for name in helped)


@pytest.mark.parametrize("name", ["render", "match", "decide", "tokenize"])
async def test_buckets_below_a_millisecond(
    start_gateway: StartGateway, name: str
) -> None:
    """What takes microseconds is measured in them."""
    gateway = await start_gateway("http://127.0.0.1:1")
    samples = await gateway.metrics()
    pattern = rf'kv_gateway_{name}_seconds_bucket{{le="([\d.e-]+)"'
    edges = [float(edge) for edge in re.findall(pattern, "\n".join(samples))]
    assert sum(edge < 0.001 for edge in edges) >= 4
