"""Data-parallel ranks: each with a cache, numbers and a port of its own."""

from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.options import BadOptions
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.conftest import FAST
from tests.simworker.talk import CHAT, get, metric, post

LONG = [{"role": "user", "content": "word " * 60}]
TWO = msgspec.structs.replace(FAST, data_parallel_size=2, replay_port=0)
PIN = "X-data-parallel-rank"


async def cached(
    client: aiohttp.ClientSession, worker: SimWorker, **headers: str
) -> int:
    """The hit of the same prompt again."""
    body = {"model": "m", "messages": LONG, "max_tokens": 1}
    status, answer = await post(client, worker, CHAT, body, **headers)
    assert status == 200
    details = answer["usage"]["prompt_tokens_details"] or {}
    return int(details.get("cached_tokens", 0))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_pinned_ranks_have_caches_of_their_own(
    client: aiohttp.ClientSession, start_worker: StartWorker, engine: str
) -> None:
    """A prompt is found where it was before, and only there."""
    worker = await start_worker(
        msgspec.structs.replace(
            TWO, engine=engine, block_size=16, served_model_name=("m",)
        )
    )
    assert await cached(client, worker, **{PIN: "1"}) == 0
    assert await cached(client, worker, **{PIN: "0"}) == 0
    assert await cached(client, worker, **{PIN: "1"}) > 0
    ranks = (await get(client, worker, "/sim/cache"))["ranks"]
    assert [len(rank["blocks"]) for rank in ranks] == [worker.cache.held] * 2
    body = {"model": "m", "messages": LONG, "max_tokens": 1}
    status, answer = await post(client, worker, CHAT, body, **{PIN: "2"})
    assert status == 400
    assert "[0, 2)" in str(answer)


async def test_unpinned_requests_take_turns(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """With nothing to do, one rank after the other."""
    worker = await start_worker(msgspec.structs.replace(TWO, served_model_name=("m",)))
    hits = [await cached(client, worker) for _ in range(4)]
    assert [hit > 0 for hit in hits] == [False, False, True, True]


async def test_ports_count_up(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """vLLM lists each rank, SGLang the ports of the first."""
    worker = await start_worker(TWO)
    sources = await get(client, worker, "/kv_event_sources")
    assert list(sources) == ["0", "1"]
    for name in ("endpoint", "replay_endpoint"):
        first, second = (int(sources[rank][name].rpartition(":")[2]) for rank in "01")
        assert second == first + 1
    async with client.get(worker.url + "/metrics") as response:
        metrics = await response.text()
    assert metric(metrics, 'vllm:num_requests_running{engine="1"') == 0.0
    worker = await start_worker(msgspec.structs.replace(TWO, engine="sglang"))
    info = await get(client, worker, "/server_info")
    described = info["kv_events"]
    ports = [publisher.port for publisher in worker.ranks.publishers]
    replays = [publisher.replay_port for publisher in worker.ranks.publishers]
    assert (info["dp_size"], described["dp_size"]) == (2, 2)
    assert ports == [described["endpoint_port_base"] + rank for rank in range(2)]
    assert replays == [
        described["replay_endpoint_port_base"] + rank for rank in range(2)
    ]
    loads = (await get(client, worker, "/v1/loads"))["loads"]
    assert [load["dp_rank"] for load in loads] == [0, 1]


def test_options_that_make_no_sense() -> None:
    """They are refused before anything starts."""
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"data_parallel_size": 0}, "--data-parallel-size must be at least 1"),
        ({"bigrams": True}, "--bigrams: only SGLang"),
        ({"kv_events_connect": "a:1"}, "--kv-events-connect a:1: not tcp://HOST:PORT"),
        ({"event_layout": "0.1"}, "--event-layout must be one of: maps, 0.9"),
        ({"attention_windows": (0,)}, "--attention-windows must be at least 1"),
        ({"faults": '{"drop": -1}'}, "--faults: drop must be"),
    )
    for changes, why in refused:
        with pytest.raises(BadOptions, match=why):
            msgspec.structs.replace(FAST, **changes).check()
