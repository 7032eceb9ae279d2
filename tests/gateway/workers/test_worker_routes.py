"""Workers added, drained and taken out while the gateway serves."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from gateway.workers import workers_file
from router.worker import WorkerState
from tests.gateway.scripted import ANSWER, LISTING, ask, posts, state, worker
from tests.proxy.raw import (
    CHAT,
    LAST_CHUNK,
    SSE_HEAD,
    RawClient,
    RawWorker,
    Script,
    WorkerConnection,
    chunk,
    event,
)
from tests.running import MODEL, WITH_EVENTS, Running, StartGateway, StartWorker, until

PATH = "/gateway/workers"
HELLO = [{"role": "user", "content": "hello"}]


async def send(gateway: Running, method: str, body: object, status: int) -> Any:
    """The JSON of the answer to a request to the route."""
    url = gateway.url + PATH
    async with gateway.client.request(method, url, json=body) as response:
        assert response.status == status, await response.text()
        return await response.json()


async def test_a_worker_is_added_and_used(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """It is contacted at once, and gets requests when it has answered."""
    first, second = await start_worker(), await start_worker()
    gateway = await start_gateway(first, policy="round_robin")
    added = await send(gateway, "POST", {"url": second.url}, 201)
    assert (added["url"], added["state"]) == (second.url, "joining")
    await until(lambda: state(gateway, second.url) is WorkerState.ready)
    answered = {(await gateway.chat(HELLO)).worker for _ in range(4)}
    assert answered == {first.url, second.url}
    await send(gateway, "POST", {"url": second.url}, 409)


async def test_a_drained_worker_gets_nothing_until_it_is_back(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Also where its cache is the warmest."""
    first, second = await start_worker(), await start_worker()
    gateway = await start_gateway(first, second)
    warm = (await gateway.chat(HELLO)).worker
    drained = await send(gateway, "PATCH", {"url": warm, "state": "draining"}, 200)
    assert drained["state"] == "draining"
    assert {(await gateway.chat(HELLO)).worker for _ in range(3)} == (
        {first.url, second.url} - {warm}
    )
    await send(gateway, "PATCH", {"url": warm, "state": "ready"}, 200)
    assert state(gateway, warm) is WorkerState.ready


def told(gateway: Running, url: str) -> list[str]:
    """The series of a worker on the metrics page."""
    page = generate_latest(gateway.gateway.metrics.registry).decode()
    return [line for line in page.splitlines() if url in line]


def pausing(go_on: asyncio.Event) -> Script:
    """Streams of two events; the second waits."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            if not request.startswith(b"POST"):
                await connection.send(LISTING)
                continue
            await connection.send(SSE_HEAD + chunk(event(1)))
            await go_on.wait()
            await connection.send(chunk(event(2)) + LAST_CHUNK)

    return script


async def test_a_worker_that_is_taken_out_keeps_its_streams(
    start_gateway: StartGateway,
) -> None:
    """And leaves nothing behind: no task, no series, no knowledge."""
    go_on = asyncio.Event()
    async with RawWorker(pausing(go_on)) as streaming, worker(b"") as other:
        gateway = await start_gateway(streaming.url)
        await send(gateway, "POST", {"url": other.url, "model": "m"}, 201)
        async with RawClient(gateway.port) as client:
            chat = {"model": "m", "stream": True, "messages": HELLO}
            await client.post(json.dumps(chat).encode())
            await client.head()
            assert await client.chunk() == event(1)
            url = f"{gateway.url}{PATH}?url={streaming.url}"
            async with gateway.client.delete(url) as response:
                gone = await response.json()
            assert gone == {"removed": streaming.url, "inflight_requests": 1}
            page = await gateway.get(PATH)
            assert [one["url"] for one in page["workers"]] == [other.url]
            go_on.set()
            assert await client.chunk() == event(2)
            assert await client.chunk() == b""
        assert await gateway.metric("internal_errors_total") == 0
        index = await gateway.get("/gateway/index")
        assert streaming.url not in {owner["worker"] for owner in index["owners"]}
        await until(lambda: not told(gateway, streaming.url))


async def test_a_worker_whose_name_leaves_the_file_keeps_its_streams(
    start_gateway: StartGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is taken out by hand."""
    monkeypatch.setattr(workers_file, "LOOK_S", 0.02)
    path, go_on = tmp_path / "workers.json", asyncio.Event()
    async with RawWorker(pausing(go_on)) as streaming, worker(ANSWER) as other:
        path.write_text(json.dumps([streaming.url]))
        gateway = await start_gateway(workers_file=path, model=())
        async with RawClient(gateway.port) as client:
            await client.post(CHAT)
            await client.head()
            assert await client.chunk() == event(1)
            path.write_text(json.dumps([other.url]))
            pool = gateway.gateway.pool
            await until(lambda: [w.url for w in pool.workers] == [other.url])
            await until(lambda: state(gateway, other) is WorkerState.ready)
            assert (await ask(gateway))[0] == 200
            assert posts(streaming) == 1
            go_on.set()
            assert await client.chunk() == event(2)
            assert await client.chunk() == b""
    assert await gateway.metric("internal_errors_total") == 0


async def test_what_a_worker_still_answers_is_in_flight_when_it_is_back(
    start_gateway: StartGateway,
) -> None:
    """Else it would get too much: nobody else knows of these requests."""
    go_on = asyncio.Event()
    async with RawWorker(pausing(go_on)) as streaming:
        url = streaming.url
        gateway = await start_gateway(url)
        async with RawClient(gateway.port) as client:
            chat = {"model": "m", "stream": True, "messages": HELLO}
            await client.post(json.dumps(chat).encode())
            await client.head()
            assert await client.chunk() == event(1)
            for _ in range(2):  # it may go more than once meanwhile
                await send(gateway, "DELETE", {"url": url}, 200)
                added = await send(gateway, "POST", {"url": url, "model": "m"}, 201)
                assert added["inflight_requests"] == 1
            (gauge,) = inflight(gateway, url)
            assert gauge.endswith(" 1.0")
            go_on.set()
            assert await client.chunk() == event(2)
            assert await client.chunk() == b""
        await until(lambda: inflight(gateway, url)[0].endswith(" 0.0"))
        page = await gateway.get(PATH)
        assert [one["inflight_requests"] for one in page["workers"]] == [0]


def inflight(gateway: Running, url: str) -> list[str]:
    """The gauge of a worker's requests in flight."""
    name = "kv_gateway_inflight_requests"
    return [line for line in told(gateway, url) if line.startswith(name)]


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("POST", {}, 400),
        ("POST", {"url": "ftp://w"}, 400),
        ("POST", {"url": "w", "nonsense": 1}, 400),
        ("POST", [], 400),
        ("POST", {"url": "w", "api_key_file": "/etc/hostname"}, 400),
        ("PATCH", {"url": "w", "state": "draining"}, 404),
        ("PATCH", {"state": "draining"}, 400),
        ("PATCH", {"url": "http://127.0.0.1:1", "state": "down"}, 400),
        ("PATCH", [], 400),
        ("DELETE", {"url": "w"}, 404),
        ("DELETE", {"url": 3}, 400),
        ("DELETE", None, 400),
        ("PUT", {}, 405),
    ],
)
async def test_mistakes(
    start_gateway: StartGateway, method: str, body: object, status: int
) -> None:
    """Told in OpenAI's shape; nothing changes."""
    gateway = await start_gateway("http://127.0.0.1:1")
    answer = await send(gateway, method, body, status)
    assert answer["error"]["message"]
    assert len(gateway.gateway.pool.workers) == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_behind_the_guard(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As all of /gateway: from elsewhere only with the key."""
    monkeypatch.setattr("gateway.access.operators._is_loopback", lambda _: False)
    gateway = await start_gateway("http://127.0.0.1:1", admin_key="secret")
    answer = await send(gateway, method, {"url": "w"}, 401)
    assert answer["error"]["code"] == "unauthorized"


async def test_what_is_known_of_its_cache_goes_with_it(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Its blocks leave the index; added again, its events are followed anew."""
    first, second = await start_worker(WITH_EVENTS), await start_worker(WITH_EVENTS)
    gateway = await start_gateway(first, second, policy="round_robin")
    long = [{"role": "user", "content": "so it goes on and on " * 40}]
    for _ in range(2):
        await gateway.chat(long)
    await gateway.until_events_arrive(first, second)
    url = f"{gateway.url}{PATH}?url={first.url}"
    async with gateway.client.delete(url) as response:
        assert response.status == 200
    indexes = gateway.gateway.indexes
    owners = (await gateway.get("/gateway/index"))["owners"]
    assert [owner["worker"] for owner in owners] == [second.url]
    await send(gateway, "POST", {"url": first.url}, 201)
    await until(lambda: state(gateway, first.url) is WorkerState.ready)
    known = gateway.gateway.pool.get(first.url)
    assert known is not None
    await until(lambda: bool(known.knowledge))
    for number in range(2):
        await gateway.chat([{"role": "user", "content": f"{number} anew " * 60}])
    await until(lambda: known.knowledge[0].feed.state == "live")
    assert sum(index.blocks for index in indexes.all) > 0
    assert await gateway.metric("internal_errors_total") == 0


async def test_the_last_one_may_go(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Then there is nobody to send to, until one comes."""
    only = await start_worker()
    gateway = await start_gateway(only)
    await send(gateway, "DELETE", {"url": only.url}, 200)
    chat = {"model": MODEL, "messages": HELLO}
    answer = await gateway.post("/v1/chat/completions", chat, 503)
    assert answer["error"]["code"] == "no_worker"
    await gateway.get("/ready", 503)
    await send(gateway, "POST", {"url": only.url}, 201)
    await until(lambda: state(gateway, only.url) is WorkerState.ready)
    assert (await gateway.chat(HELLO)).worker == only.url
