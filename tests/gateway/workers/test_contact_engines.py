"""Asking workers of each engine: their own routes, and which engine it is at all."""

import json

import aiohttp
import pytest

from gateway.workers import contact
from gateway.workers.engines.facts import EventSource
from gateway.workers.engines.trtllm import EventDecoder
from router.worker import WorkerSpec
from tests.gateway.workers.test_contact import facts_of
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer

SGLANG = {
    "version": "0.5.23",
    "page_size": 64,
    "dcp_size": 1,
    "dp_size": 2,
    "max_total_num_tokens": 64_000,
    "startup_time": 12.5,
    "internal_states": [{"weight_version": "default"}],
    "kv_events": {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": 5557,
        "topic": "",
        "block_size": 64,
        "dp_size": 2,
        "replay_endpoint_port_base": 6557,
    },
}
TRTLLM = {
    "disaggregated_params": {},
    "kv_cache_hash_algo": "v1_block_key",
    "tokens_per_block": 32,
    "max_batch_size": 64,
}


def listed_by(owner: str | None) -> bytes:
    """A list of one model, owned by an engine or not."""
    card = {"id": "m"} | ({"owned_by": owner} if owner else {})
    return json.dumps({"data": [card]}).encode()


@pytest.mark.parametrize("owner", ["sglang", None])
@pytest.mark.parametrize("route", [b"/server_info", b"/get_server_info"])
async def test_sglang(owner: str | None, route: bytes) -> None:
    """One page has it all, by its newer name or its older, with `owned_by` or not."""
    pages = {b"/v1/models": listed_by(owner), route: json.dumps(SGLANG).encode()}
    facts = await facts_of(pages)
    assert (facts.engine, facts.version) == ("sglang", "0.5.23")
    assert (facts.block_size, facts.cache_blocks) == (64, 1000)
    assert (facts.started_at, facts.ranks) == (12.5, (0, 1))
    assert facts.sources == {
        rank: EventSource(
            endpoint=f"tcp://127.0.0.1:{5557 + rank}",
            replay=f"tcp://127.0.0.1:{6557 + rank}",
            topic="",
        )
        for rank in (0, 1)
    }
    assert facts.drained is None


@pytest.mark.parametrize("owner", ["tensorrt_llm", None])
async def test_trtllm(owner: str | None) -> None:
    """Events are fetched, and decoded by the algorithm that it names."""
    pages = {
        b"/v1/models": listed_by(owner),
        b"/version": b'{"version": "1.4.0"}',
        b"/server_info": json.dumps(TRTLLM).encode(),
    }
    facts = await facts_of(pages)
    assert (facts.engine, facts.version, facts.block_size) == ("trtllm", "1.4.0", 32)
    assert facts.drained == EventDecoder("v1_block_key")
    assert facts.sources == {}


async def test_pages_that_reading_empties_are_left_alone() -> None:
    """TensorRT-LLM's /metrics tells each statistic once, to whoever reads first."""
    seen: list[bytes] = []
    info = json.dumps(TRTLLM).encode()
    pages = {b"/v1/models": listed_by(None), b"/server_info": info}

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            seen.append(request.split(b" ")[1])
            await connection.send(json_answer(pages.get(seen[-1], b"[]")))

    async with RawWorker(script) as worker, aiohttp.ClientSession() as session:
        for engine in ("trtllm", None):
            spec = WorkerSpec(url=worker.url, engine=engine)
            assert (await contact.ask(session, spec, None)).engine == "trtllm"
    assert b"/metrics" not in seen


@pytest.mark.parametrize("owner", ["sglang", "tensorrt_llm", None])
async def test_a_key_that_is_wanted_is_said(owner: str | None) -> None:
    """401 of /server_info: a reason of its own, not an absence of events."""
    pages = {b"/v1/models": listed_by(owner)}
    facts = await facts_of(pages, missing=b"401 Unauthorized")
    assert facts.trouble is not None
    assert "/server_info answers 401" in facts.trouble
    assert "--worker-api-key" in facts.trouble


async def test_an_engine_that_cannot_be_told_now() -> None:
    """A failing route is no sign of another engine."""
    facts = await facts_of({b"/v1/models": listed_by(None)}, missing=b"500 Broken")
    assert (facts.engine, facts.sources) == (None, None)


@pytest.mark.parametrize("size", [0, -16, 48.5, "16", None, True, 1 << 40])
@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
async def test_block_sizes_that_cannot_be(engine: str, size: object) -> None:
    """They are none, with a line; the worker's events may tell better."""
    told: dict[str, object] = TRTLLM | {"tokens_per_block": size}
    if engine == "sglang":
        told = SGLANG | {"page_size": size, "kv_events": None}
    pages = {
        b"/v1/models": listed_by({"trtllm": "tensorrt_llm"}.get(engine, engine)),
        b"/server_info": json.dumps(told).encode(),
    }
    facts = await facts_of(pages)
    assert facts.block_size is None
    if size is not None:
        assert facts.trouble is not None
        assert "no block size" in facts.trouble


@pytest.mark.parametrize("size", ["0", "99999999"])
async def test_block_sizes_of_vllm_that_cannot_be(size: str) -> None:
    """The same where the size is a label."""
    page = f'vllm:cache_config_info{{block_size="{size}"}} 1\n'.encode()
    facts = await facts_of({b"/v1/models": listed_by("vllm"), b"/metrics": page})
    assert facts.block_size is None
    assert facts.trouble is not None
    assert size in facts.trouble


@pytest.mark.parametrize(
    ("owner", "engine"),
    [
        ('"vllm"', "vllm"),
        ('"sglang"', "sglang"),
        ('"tensorrt_llm"', "trtllm"),
        ('"somebody"', "generic"),
        ("null", "generic"),
        ("[1]", "generic"),
    ],
)
async def test_engines_by_what_they_call_themselves(owner: str, engine: str) -> None:
    """`owned_by` says which engine it is; anything odd is no engine we know."""
    page = f'{{"data": [{{"id": "m", "owned_by": {owner}}}]}}'.encode()
    facts = await facts_of({b"/v1/models": page})
    assert facts.engine == engine
