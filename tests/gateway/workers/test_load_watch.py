"""Load that workers report: asked for, believed for a while, and what it changes."""

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from gateway.settings.config import Config
from gateway.workers import load_watch
from router import WorkerPool, WorkerSpec
from router.load import Load
from simworker.options import SimOptions
from tests.gateway.answering import Answer, Scripted
from tests.running import MODEL, SIM, Running, StartGateway, StartWorker, until

SLOW = msgspec.structs.replace(SIM, speed=1.0, prefill_rate=2_000.0)
QUICK = {"load_interval": 0.1}
LONG = "why do queues grow ? " * 400


def engine(name: str) -> SimOptions:
    """A slow worker of that engine."""
    return msgspec.structs.replace(SLOW, engine=name)


async def shown(gateway: Running, worker: int = 0) -> dict[str, Any]:
    """A worker as `/gateway/workers` shows it."""
    page = await gateway.get("/gateway/workers")
    found: dict[str, Any] = page["workers"][worker]
    return found


async def asked(
    gateway: Running, count: int, text: str = LONG, **more: Any
) -> list[asyncio.Task[Any]]:
    """Chats, none like another, under way."""

    async def ask(number: int) -> None:
        messages = [{"role": "user", "content": f"{number} {text}"}]
        body = {"model": MODEL, "messages": messages, "stream": True, **more}
        path = gateway.url + "/v1/chat/completions"
        async with gateway.client.post(path, json=body) as answer:
            await answer.read()

    return [asyncio.create_task(ask(number)) for number in range(count)]


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Leave without waiting for the answers."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def waiting(gateway: Running) -> int:
    """What its first worker says waits there."""
    report = gateway.gateway.pool.workers[0].report(0)
    return 0 if report is None else report.load.waiting


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("vllm", "/metrics"),
        ("sglang", "/v1/loads"),
        ("trtllm", "/prometheus/metrics"),
    ],
)
async def test_one_gateway_sees_what_another_has_queued(
    start_worker: StartWorker, start_gateway: StartGateway, name: str, source: str
) -> None:
    """Two gateways over one fleet: where the one has queued the other does not pile.

    Seen on the workers page, by `explain`, on the metrics; and it is not the requests
    of the gateway that queued that count as others'.
    """
    busy, idle = await start_worker(engine(name)), await start_worker(engine(name))
    first = await start_gateway(busy, **QUICK)
    second = await start_gateway(busy, idle, **QUICK)
    under_way = await asked(first, 8)
    await until(lambda: waiting(second) >= 5)
    await until(lambda: waiting(first) >= 5)

    page = await shown(second)
    assert (page["load_source"], page["inflight_requests"]) == (source, 0)
    (load,) = page["load"]
    assert load["waiting_requests"] >= 5
    assert load["others_tokens"] > 1_000
    assert (await shown(first))["load"][0]["others_tokens"] == 0
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    explained = await second.post("/gateway/explain", body)
    assert explained["chosen"]["url"] == idle.url
    assert explained["workers"][0]["others_tokens"] > 1_000
    assert await second.metric("reported_waiting_requests", worker=busy.url) >= 5
    assert await second.metric("reported_running_requests", worker=busy.url) >= 1
    assert 0 < await second.metric("reported_kv_usage_ratio", worker=busy.url) < 1
    assert await second.metric("others_waiting_tokens", worker=busy.url) > 1_000

    answers = [second.chat([{"role": "user", "content": f"hi {n}"}]) for n in range(4)]
    assert {answer.worker for answer in await asyncio.gather(*answers)} == {idle.url}
    await ended(under_way)


async def test_one_gateway_sees_what_another_has_decoding(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Nothing waits, but long answers are under way: others' at one of the two."""
    options = msgspec.structs.replace(SIM, speed=1.0, blocks=4_096)
    busy, idle = await start_worker(options), await start_worker(options)
    first = await start_gateway(busy, **QUICK)
    second = await start_gateway(busy, idle, **QUICK)
    long = {"max_tokens": 16_000, "ignore_eos": True}
    under_way = await asked(first, 5, "hello", **long)
    theirs, ours = (one.gateway.pool.workers[0] for one in (second, first))
    await until(lambda: (r := theirs.report(0)) and r.others_running > 0.5)
    await until(lambda: (r := ours.report(0)) and r.load.running == 5)

    assert (await shown(first))["load"][0]["others_running_requests"] == 0
    assert (await shown(second))["load"][0]["others_running_requests"] > 0
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    explained = await second.post("/gateway/explain", body)
    assert explained["chosen"]["url"] == idle.url
    assert explained["workers"][0]["others_decode_tokens"] > 100
    assert explained["workers"][0]["busy_s"] > explained["workers"][1]["busy_s"]
    await ended(under_way)


@pytest.mark.parametrize("reports", [1, 2])
def test_ranks_that_the_worker_picks_share_ours(reports: int) -> None:
    """All are booked at the first rank: at another they are no others' for that."""
    pool = WorkerPool(clock=time.monotonic)
    worker = pool.add(WorkerSpec(url="w"))
    worker.ranks, worker.can_pin_ranks = (0, 1), False
    for _ in range(6):
        worker.ledger(0).book(100, 100, prefill_s=None).first_token()
    watch = load_watch.LoadWatch(Config(), pool)
    loads = {rank: Load(running=8 // reports) for rank in range(reports)}
    watch._write_down(worker, "/metrics", load_watch._own(worker), loads)
    told = [worker.reports[rank].others_running for rank in range(reports)]
    assert sum(told) == 2


async def test_a_report_that_is_not_renewed_expires(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that no longer tells is as loaded as the ledger says, and says so."""
    monkeypatch.setattr(load_watch, "LIVES_S", 0.2)
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker, load_interval=0.05)
    known = gateway.gateway.pool.workers[0]
    await until(lambda: known.report(0))
    known.engine = "generic"
    await until(lambda: known.report(0) is None)
    page = await shown(gateway)
    assert (page["load_source"], page["load"]) == ("own requests", [])
    assert await gateway.metrics()
    assert await gateway.metric("reported_running_requests") == 0


async def test_a_long_page_is_read_beside_the_loop(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Many ranks make a page of megabytes; what it says is the same."""
    page = "\n".join(f'noise{{n="{n}"}} 1.0' for n in range(60_000))
    page += '\ntrtllm_num_requests_running{model_name="m"} 7.0\n'

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/prometheus/metrics":
            return web.Response(text=page)
        if request.path == "/v1/models":
            card = {"id": MODEL, "owned_by": "tensorrt_llm"}
            return web.json_response({"object": "list", "data": [card]})
        return web.Response(status=404)

    gateway = await start_gateway(await scripted(answer), **QUICK)
    known = gateway.gateway.pool.workers[0]
    await until(lambda: known.report(0))
    assert known.reports[0].load.running == 7


async def test_ranks_that_a_worker_has_not_got_are_none(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """Whatever it tells of them, nothing is kept."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/loads":
            ranks = [{"dp_rank": rank, "num_running_reqs": rank} for rank in range(50)]
            return web.json_response({"loads": ranks})
        if request.path == "/v1/models":
            card = {"id": MODEL, "owned_by": "sglang"}
            return web.json_response({"object": "list", "data": [card]})
        return web.Response(status=404)

    gateway = await start_gateway(await scripted(answer), **QUICK)
    known = gateway.gateway.pool.workers[0]
    await until(lambda: known.report(0))
    assert list(known.reports) == [0]


def _listing(engine_name: str, paths: list[str], hangs: bool) -> Answer:
    """A worker that calls itself so, and tells nothing of its load."""

    async def answer(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        if request.path == "/v1/models":
            card = {"id": MODEL, "owned_by": engine_name}
            return web.json_response({"object": "list", "data": [card]})
        if request.path == "/prometheus/metrics" and hangs:
            await asyncio.sleep(60)
        return web.Response(status=404)

    return answer


async def test_a_worker_without_the_route_is_not_pestered(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """It is asked once, and then hardly ever."""
    paths: list[str] = []
    url = await scripted(_listing("tensorrt_llm", paths, hangs=False))
    gateway = await start_gateway(url, load_interval=0.02)
    await until(lambda: "/prometheus/metrics" in paths)
    await asyncio.sleep(0.3)
    assert paths.count("/prometheus/metrics") == 1
    assert (await shown(gateway))["load_source"] == "own requests"


async def test_a_worker_that_does_not_answer_holds_up_nobody(
    start_gateway: StartGateway, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question has a time limit of its own, and is asked again."""
    monkeypatch.setattr(load_watch, "TIMEOUT", aiohttp.ClientTimeout(total=0.1))
    paths: list[str] = []
    url = await scripted(_listing("tensorrt_llm", paths, hangs=True))
    gateway = await start_gateway(url, load_interval=0.05)
    await until(lambda: paths.count("/prometheus/metrics") >= 2)
    begun = time.monotonic()
    assert (await shown(gateway))["state"] == "ready"
    assert time.monotonic() - begun < 10  # it hangs for a minute


async def test_nobody_is_asked_if_so_configured(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """--load-interval 0"""
    gateway = await start_gateway(await start_worker(SIM), load_interval=0.0)
    await asyncio.sleep(0.2)
    assert gateway.gateway.pool.workers[0].reports == {}


async def test_the_rate_is_counted_where_nothing_is_streamed(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The engine's own counters tell how fast it prefills."""
    options = msgspec.structs.replace(
        SIM, speed=1.0, prefill_rate=200_000.0, blocks=16_384
    )
    gateway = await start_gateway(await start_worker(options), load_interval=0.02)
    rate = gateway.gateway.pool.workers[0].rate
    for number in range(60):
        text = f"{number} " + "why ? " * (100 * (1 + number % 8))
        await gateway.chat([{"role": "user", "content": text}], max_tokens=1)
        await asyncio.sleep(0.02)
        if rate.source == "counted":
            break
    assert rate.source == "counted"
    assert rate.tokens_per_s == pytest.approx(200_000, rel=0.4)
    assert (await shown(gateway))["prefill_rate_source"] == "counted"
