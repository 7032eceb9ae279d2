"""Asking workers who they are: whatever they answer, there is a fact or a reason."""

import asyncio
import json
from collections.abc import Mapping

import aiohttp
import pytest

from gateway import contact
from gateway.contact import ContactFailed, WorkerFacts
from gateway.engines.facts import EventSource
from gateway.engines.trtllm import EventDecoder
from router.models import ListedModel
from router.worker import WorkerSpec
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer

METRICS = (
    b"# HELP process_start_time_seconds Start time\n"
    b"process_start_time_seconds 1.76423e+09\n"
    b'vllm:cache_config_info{block_size="32",cache_dtype="auto",odd="a}b",'
    b'num_gpu_blocks="700"} 1\n'
)
MODELS = json.dumps(
    {
        "data": [
            {"id": "m", "root": "/models/m", "parent": None, "owned_by": "vllm"},
            {"id": "tuned", "root": "/adapters/t", "parent": "m"},
        ]
    }
).encode()
SOURCES = json.dumps(
    {
        "0": {"enable_kv_cache_events": True, "endpoint": "tcp://*:5557"},
        "1": {"enable_kv_cache_events": True, "endpoint": "tcp://10.0.0.9:5558"},
        "2": {"enable_kv_cache_events": False, "endpoint": "tcp://*:5559"},
        "3": {"enable_kv_cache_events": True, "endpoint": None},
        "x": {"enable_kv_cache_events": True, "endpoint": "tcp://*:1"},
        "\u00b2": {"enable_kv_cache_events": True, "endpoint": "tcp://*:1"},
        "4": "no source",
    }
).encode()
ALL = {
    b"/v1/models": MODELS,
    b"/version": b'{"version": "0.32.0"}',
    b"/metrics": METRICS,
    b"/kv_event_sources": SOURCES,
}


async def facts_of(
    pages: Mapping[bytes, bytes], *, missing: bytes = b"404 Not Found"
) -> WorkerFacts:
    """What is learnt of a worker that has these pages."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            page = pages.get(request.split(b" ")[1])
            if page is None:
                await connection.send(json_answer(b"{}", status=missing))
            else:
                await connection.send(json_answer(page))

    async with RawWorker(script) as worker, aiohttp.ClientSession() as session:
        return await contact.ask(session, WorkerSpec(url=worker.url), None)


async def test_all_that_a_worker_tells() -> None:
    """Models, engine, version, block size, cache, start, and where its events are."""
    facts = await facts_of(ALL)
    assert facts.models == (
        ListedModel(id="m", root="/models/m", parent=None),
        ListedModel(id="tuned", root="/adapters/t", parent="m"),
    )
    assert facts.listing[0]["owned_by"] == "vllm"
    assert (facts.engine, facts.version) == ("vllm", "0.32.0")
    assert (facts.block_size, facts.cache_blocks) == (32, 700)
    assert facts.started_at == 1.76423e09
    assert facts.sources == {
        0: EventSource(endpoint="tcp://127.0.0.1:5557"),
        1: EventSource(endpoint="tcp://10.0.0.9:5558"),
    }


async def test_only_models_are_needed() -> None:
    """An engine without the other routes is generic, and has no event sources."""
    facts = await facts_of({b"/v1/models": b'{"data": [{"id": "m"}]}'})
    assert facts.engine == "generic"
    assert (facts.version, facts.block_size, facts.started_at) == (None, None, None)
    assert facts.sources == {}


async def test_a_failing_route_tells_nothing() -> None:
    """A 500 is no answer about event sources, unlike a 404."""
    facts = await facts_of({b"/v1/models": MODELS}, missing=b"500 Broken")
    assert facts.sources is None


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


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "page",
    [b"", b"null", b"[]", b'{"data": 5}', b'{"data": ["x"]}', b"\xff", DEEP,
     b'{"data": ' + DEEP],
    ids=lambda page: repr(page[:12]),
)  # fmt: skip
async def test_no_list_of_models(page: bytes) -> None:
    """What is no list of models is a reason, whatever it is."""
    with pytest.raises(ContactFailed, match="no list of models"):
        await facts_of({b"/v1/models": page})


@pytest.mark.parametrize("page", [b"", b"null", b"\xff\xfe{", DEEP, b"[1]", b'{"a":1}'])
async def test_odd_pages_are_no_harm(page: bytes) -> None:
    """The optional pages may hold anything."""
    odd = dict.fromkeys(ALL, page) | {b"/v1/models": b'{"data": [{}]}'}
    facts = await facts_of(odd)
    assert facts.models == (ListedModel(id="", root=None, parent=None),)
    assert facts.sources == {}


async def test_refusals_and_silence() -> None:
    """A status, a refused connection, a lost one: each is a reason in a few words."""
    with pytest.raises(ContactFailed, match="/v1/models answers 404"):
        await facts_of({})
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ContactFailed, match=r"cannot connect: .*refused"):
            await contact.ask(session, WorkerSpec(url="http://127.0.0.1:1"), None)

        async def hang_up(connection: WorkerConnection) -> None:
            await connection.request()

        async with RawWorker(hang_up) as worker:
            with pytest.raises(ContactFailed, match="Disconnected"):
                await contact.ask(session, WorkerSpec(url=worker.url), None)


async def test_endless_answers_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker makes the gateway hold more than so much of an answer."""
    monkeypatch.setattr(contact, "ANSWER_LIMIT", 10_000)
    with pytest.raises(ContactFailed, match=r"no list|more than"):
        await facts_of({b"/v1/models": b'{"data": [' + b" " * 100_000})


async def test_slow_workers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that says nothing is a reason, in time."""
    monkeypatch.setattr(contact, "TIMEOUT", aiohttp.ClientTimeout(total=0.1))

    async def silent(connection: WorkerConnection) -> None:
        await connection.request()
        await asyncio.sleep(5)

    async with RawWorker(silent) as worker, aiohttp.ClientSession() as session:
        with pytest.raises(ContactFailed, match="no answer in time"):
            await contact.ask(session, WorkerSpec(url=worker.url), None)


async def test_the_worker_api_key_is_sent() -> None:
    """Polls carry the key that the operator gave."""
    seen = []

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            seen.append(b"Authorization: Bearer k" in request)
            await connection.send(json_answer(MODELS))

    async with RawWorker(script) as worker, aiohttp.ClientSession() as session:
        await contact.ask(session, WorkerSpec(url=worker.url), "k")
    assert seen == [True] * 4


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
