"""A worker that tells absurd numbers is no harm to requests, nor to what asks it."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.gateway.answering import Answer, Scripted
from tests.running import Running, StartGateway, until

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
FIELDS = (
    *("num_waiting_reqs", "token_usage", "num_waiting_uncached_tokens"),
    *("total_prefill_busy_us", "total_prefill_uncached_tokens"),
)
VLLM = (
    *("num_requests_waiting", "kv_cache_usage_perc"),
    *("request_prefill_time_seconds_count", "request_prefill_time_seconds_sum"),
    "request_prefill_kv_computed_tokens_sum",
)
TRTLLM = ("num_requests_waiting", "kv_cache_utilization")
SGLANG = ("num_queue_reqs", "token_usage")


def _page(running: str, others: tuple[str, ...], prefix: str) -> str:
    """A Prometheus page: R requests run, anything else is V."""
    return "\n".join(
        [f"{prefix}{running} R", *(f"{prefix}{name} V" for name in others)]
    )


ENTRY = ", ".join(['"num_running_reqs": R', *(f'"{name}": V' for name in FIELDS)])
PAGES = {
    "vllm": ("/metrics", _page("num_requests_running", VLLM, "vllm:")),
    "tensorrt_llm": (
        "/prometheus/metrics",
        _page("num_requests_running", TRTLLM, "trtllm_"),
    ),
    "sglang": ("/v1/loads", f'{{"loads": [{{{ENTRY}}}]}}'),
    "an older sglang": ("/metrics", _page("num_running_reqs", SGLANG, "sglang:")),
}


def _telling(
    name: str, card: dict[str, object], pages: list[str], asked: list[str]
) -> Answer:
    """Tells one page after the other, the last one again and again."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/models":
            listed = {"id": "m", "owned_by": name.split()[-1]} | card
            text = json.dumps({"object": "list", "data": [listed]})
            return web.Response(text=text, content_type="application/json")
        if request.path == PAGES[name][0]:
            asked.append(request.path)
            return web.Response(text=pages.pop(0) if len(pages) > 1 else pages[0])
        if request.method == "GET":
            return web.json_response({}, status=404)
        return web.json_response({"choices": []})

    return answer


async def _asked_all(gateway: Running) -> None:
    await gateway.post("/v1/chat/completions", BODY)
    await gateway.post("/gateway/explain", BODY)


@pytest.mark.parametrize("exponent", [13, 307, 308])
@pytest.mark.parametrize("name", PAGES)
async def test_absurdly_many_run(
    start_gateway: StartGateway, scripted: Scripted, name: str, exponent: int
) -> None:
    """Above any number of requests, above what floats can be reckoned with."""
    page = PAGES[name][1].replace("V", "1").replace("R", str(10**exponent))
    asked: list[str] = []
    urls = [await scripted(_telling(name, {}, [page], asked)) for _ in range(2)]
    gateway = await start_gateway(*urls, load_interval=0.02)
    await until(lambda: len(asked) >= 2)
    for _ in range(4):
        await asyncio.sleep(0.05)  # for the answer to be read
        await _asked_all(gateway)
    for worker in (await gateway.get("/gateway/workers"))["workers"]:
        assert all(load["running_requests"] == 0 for load in worker["load"])


@pytest.mark.parametrize("exponent", [13, 307, 308])
@pytest.mark.parametrize("name", PAGES)
async def test_absurdly_much_waits(
    start_gateway: StartGateway, scripted: Scripted, name: str, exponent: int
) -> None:
    """And all else is absurd, too: what is sensible beside it is believed still."""
    page = PAGES[name][1].replace("R", "7")
    pages = [page.replace("V", "1"), page.replace("V", str(10**exponent))]
    url = await scripted(_telling(name, {}, pages, []))
    gateway = await start_gateway(url, load_interval=0.02)
    (worker,) = gateway.gateway.pool.workers
    await until(lambda: (told := worker.report(0)) and not told.load.waiting)
    load = worker.reports[0].load
    assert (load.running, load.waiting_tokens, load.kv_usage) == (7, None, None)
    await _asked_all(gateway)


async def test_an_absurd_context_length(
    start_gateway: StartGateway, scripted: Scripted
) -> None:
    """It is none that was told: the shortest of the others counts."""
    lengths = [10**400, 64]
    absurd, other = [
        await scripted(_telling("vllm", {"max_model_len": length}, [""], []))
        for length in lengths
    ]
    alone = await start_gateway(absurd)
    assert alone.gateway.monitor.max_model_len("m") is None
    gateway = await start_gateway(absurd, other)
    assert gateway.gateway.monitor.max_model_len("m") == 64
