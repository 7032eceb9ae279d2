"""Operators on a port of their own, of a gateway of one process."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gateway.server import make_runner
from tests.running import MODEL, SIM, Running, Served, StartGateway, StartWorker

FOR_OPERATORS = ("/metrics", "/gateway/", "/gateway/workers", "/gateway/index",
                 "/gateway/recent")  # fmt: skip


@pytest.fixture
async def gateway(start_worker: StartWorker, start_gateway: StartGateway) -> Running:
    """Before one worker."""
    return await start_gateway(await start_worker(SIM), admin_port=0)


@pytest.fixture
async def operators(gateway: Running) -> AsyncIterator[Served]:
    """The other port."""
    app = gateway.gateway.for_operators
    assert app is not None
    runner = make_runner(app, shutdown_s=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Served(runner.addresses[0][1], gateway.client)
    await runner.cleanup()


async def _status(server: Served, path: str, method: str = "GET") -> int:
    async with server.client.request(method, server.url + path) as response:
        return response.status


@pytest.mark.parametrize("path", FOR_OPERATORS)
async def test_what_is_for_operators(
    gateway: Running, operators: Served, path: str
) -> None:
    """It is there, and clients find nothing."""
    assert await _status(gateway, path) == 404
    assert await _status(operators, path) == 200


async def test_what_is_for_clients(gateway: Running, operators: Served) -> None:
    """The other way round; both ports tell how it is."""
    chat = await gateway.chat([{"role": "user", "content": "hello"}])
    assert chat.text
    for path in ("/v1/models", "/v1/chat/completions", "/server_info", "/tokenize"):
        assert await _status(operators, path) == 404
        assert await _status(operators, path, "POST") == 404
    for path in ("/health", "/ready"):
        assert await _status(gateway, path) == 200
        assert await _status(operators, path) == 200


async def test_operators_see_and_change_the_same_gateway(
    gateway: Running, operators: Served
) -> None:
    """What clients did is counted there, and what is changed there counts here."""
    await gateway.chat([{"role": "user", "content": "hello"}])
    assert await operators.metric("requests_total", endpoint="chat_completions") == 1
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    assert (await operators.post("/gateway/explain", body))["rendered"]
    for worker in (await operators.get("/gateway/workers"))["workers"]:
        path = f"/gateway/workers?url={worker['url']}"
        assert await _status(operators, path, "DELETE") == 200
    assert await _status(gateway, "/ready") == 503


async def test_without_one_all_is_on_one_port(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """As ever."""
    gateway = await start_gateway(await start_worker(SIM))
    assert gateway.gateway.for_operators is None
    for path in FOR_OPERATORS:
        assert await _status(gateway, path) == 200
