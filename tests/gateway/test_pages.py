"""The pages under /gateway: explain, workers, index, and who may see them."""

from typing import Any

import pytest

from gateway.access import operators
from tests.running import MODEL, SIM, WITH_EVENTS, StartGateway, StartWorker

CHAT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 4,
    "messages": [{"role": "user", "content": "hello"}],
}
OWN_GETS = ("/v1/models", "/health", "/ready", "/metrics", "/gateway/workers",
            "/gateway/index")  # fmt: skip
OWN_POSTS = ("/v1/chat/completions", "/v1/completions", "/gateway/explain")
DEAD = "http://127.0.0.1:1"

pytestmark = pytest.mark.usefixtures("never_blocks")


EXPLAIN_REFUSED = [
    b"", b"nope", b"[1]", b'{"model": "m"}', b'{"messages": null}', b"\xff\xfe",
    b"[" * 100_000, b'{"x": NaN}', b'{"a": "\xff"}',
]  # fmt: skip


@pytest.mark.parametrize("body", EXPLAIN_REFUSED, ids=lambda body: repr(body[:12]))
async def test_explain_refuses(start_gateway: StartGateway, body: bytes) -> None:
    """A body that cannot be explained is a 400 that says so."""
    gateway = await start_gateway(DEAD)
    url = gateway.url + "/gateway/explain"
    async with gateway.client.post(url, data=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("the body ")


async def test_explain_changes_nothing(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Explaining sends nothing, books nothing and counts nothing but itself."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    quiet = (
        "event_loop",
        "match_seconds",
        'endpoint="metrics"',
        'endpoint="explain"',
        "forwarding_blocked",  # by what is found out of the worker meanwhile
    )

    async def counted() -> dict[str, float]:
        samples = await gateway.metrics()
        return {k: v for k, v in samples.items() if not any(q in k for q in quiet)}

    before = await counted()
    served = worker.api.totals.requests
    for body in (CHAT, {"model": MODEL, "prompt": "hello"}, CHAT | {"model": "none"}):
        explained = await gateway.post("/gateway/explain", body)
        assert explained["chosen"] == {"url": worker.url, "rank": 0}
        assert explained["rendered"] is True
        (entry,) = explained["workers"]
        assert entry["uncached_tokens"] == explained["prompt_tokens"]
        assert entry["held_tokens"] == entry["history_tokens"] == 0
        assert explained["why"]
    assert await counted() == before
    assert worker.api.totals.requests == served


async def test_explain_says_why_not_rendered(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A request that cannot be rendered is still explained."""
    gateway = await start_gateway(await start_worker())
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    body = CHAT | {"messages": [{"role": "user", "content": image}]}
    explained = await gateway.post("/gateway/explain", body)
    assert explained["rendered"] is False
    assert explained["reason"] == "media"
    assert "media" in explained["why"]


async def test_gateway_pages_are_guarded(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From elsewhere /gateway/** needs the key; the rest does not."""
    monkeypatch.setattr(operators, "_is_loopback", lambda peer: False)
    closed = await start_gateway(DEAD)
    for path in ("/gateway/workers", "/gateway/index"):
        await closed.get(path, 403)
    await closed.post("/gateway/explain", CHAT, 403)
    gateway = await start_gateway(DEAD, admin_key="secret")
    spoofed = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}
    await gateway.get("/gateway/workers", 401, headers=spoofed)
    for value in ("secret", "Basic secret", "Bearer ", "Bearer secreT", "Bearer \xff"):
        wrong = {"Authorization": value}
        await gateway.get("/gateway/workers", 401, headers=wrong)
    for value in ("Bearer secret", "bearer secret"):
        right = {"Authorization": value}
        await gateway.get("/gateway/workers", 200, headers=right)
    await gateway.get("/health")


async def test_workers_page(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """State, load, feeds and hit tokens of each worker."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker, DEAD)
    for _ in range(2):
        await gateway.chat([{"role": "user", "content": "tell me a lot " * 40}])
        await gateway.until_events_arrive(worker)
    alive, dead = (await gateway.get("/gateway/workers"))["workers"]
    assert (alive["url"], alive["state"]) == (worker.url, "ready")
    assert alive["engine"] == "vllm"
    assert alive["version"] == "0.32.0"
    assert alive["models"] == [MODEL]
    assert (alive["block_size"], alive["cache_blocks"]) == (16, SIM.blocks)
    assert alive["inflight_requests"] == alive["inflight_tokens"] == 0
    assert alive["predicted_hit_tokens"] == alive["delivered_hit_tokens"] > 0
    (feed,) = alive["feeds"]
    assert (feed["rank"], feed["state"], feed["complete"]) == (0, "live", True)
    assert 0 <= feed["state_s"] < 60
    assert dead["state"] == "joining"
    assert "connect" in dead["reason"]


async def test_index_page(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Blocks and bytes in all, and what each owner holds."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    await gateway.chat([{"role": "user", "content": "tell me a lot " * 40}])
    await gateway.until_events_arrive(worker)
    page = await gateway.get("/gateway/index")
    (owner,) = page["owners"]
    assert (owner["worker"], owner["rank"]) == (worker.url, 0)
    assert page["blocks"] == owner["blocks"] == owner["gpu_blocks"] >= 8
    assert 0 < page["bytes"] < page["limit_bytes"]
    assert owner["stored"] == owner["blocks"]
    assert (owner["gaps"], owner["restarts"], owner["orphans"]) == (0, 0, 0)
    assert owner["rejected"] == {}
    known = gateway.gateway.pool.workers[0].knowledge[0].feed.owner
    assert known is not None
    known.holes = 3
    assert (await gateway.get("/gateway/index"))["owners"][0]["holes"] == 3
