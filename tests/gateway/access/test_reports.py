"""Field reports about keys: what went wrong with other gateways, asserted.

That a refused /server_info is named as that, and events come all the same
(sgl-project/sglang#30046), is in tests/gateway/test_source_reports.py; that names of
models make no series (llm-d/llm-d-router#1625) in tests/gateway/request and metrics.
"""

from pathlib import Path

from aiohttp import web

from tests.gateway.access.test_clients import KEY, OTHER_KEY, bearer, keys_file
from tests.gateway.answering import Scripted
from tests.running import MODEL, StartGateway, until

WORKERS_KEY = "sk-the-workers"


async def test_workers_that_want_a_key_for_everything(
    scripted: Scripted, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Polls, health checks and requests bring it: the worker becomes and stays ready.

    vllm-project/router#159: never ready, as health probes were answered 401.
    """
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        sent = request.headers.get("Authorization", "")
        asked.append((request.path, sent))
        if sent != f"Bearer {WORKERS_KEY}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        listed = {"id": MODEL, "object": "model", "owned_by": "vllm"}
        return web.json_response({"object": "list", "data": [listed]})

    gateway = await start_gateway(
        await scripted(answer),
        worker_api_key=WORKERS_KEY,
        health_interval=0.05,
        api_keys_file=keys_file(tmp_path),
    )
    await gateway.get("/ready")
    await until(lambda: any(path == "/health" for path, _ in asked))
    async with gateway.client.post(
        gateway.url + "/v1/chat/completions", json={}, headers=bearer(KEY)
    ) as response:
        assert response.status == 200
    paths = {path for path, _ in asked}
    assert {"/v1/models", "/health", "/metrics", "/v1/chat/completions"} <= paths
    assert {sent for _, sent in asked} == {f"Bearer {WORKERS_KEY}"}
    page = await gateway.get("/gateway/workers")
    assert page["workers"][0]["state"] == "ready"


async def test_keys_by_the_thousand_add_no_series(
    scripted: Scripted, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """What strangers send as keys, and how they call themselves, is no label.

    llm-d/llm-d-router#1625: /metrics grew with names that clients chose.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"data": []})

    gateway = await start_gateway(
        await scripted(answer), api_keys_file=keys_file(tmp_path), health_interval=0.0
    )

    async def models(key: str, status: int) -> None:
        await gateway.get("/v1/models", status, headers=bearer(key))

    for key, status in ((KEY, 200), (OTHER_KEY, 200), ("x", 401)):
        await models(key, status)
    series = {name for name in await gateway.metrics() if "key" in name}
    for number in range(300):
        await models(f"kvg-stranger-{number}", 401)
    assert {name for name in await gateway.metrics() if "key" in name} == series
