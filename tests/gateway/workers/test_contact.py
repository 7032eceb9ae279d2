"""Asking workers who they are: whatever they answer, there is a fact or a reason."""

import asyncio
import json
from collections.abc import Mapping

import aiohttp
import pytest

from gateway.workers import contact
from gateway.workers.contact import ContactFailed, WorkerFacts
from gateway.workers.engines.facts import EventSource
from router.models import ListedModel
from router.worker import WorkerSpec
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer

METRICS = (
    b"# HELP process_start_time_seconds Start time\n"
    b"process_start_time_seconds 1.76423e+09\n"
    b'vllm:cache_config_info{block_size="32",cache_dtype="auto",odd="a}b",'
    b'num_gpu_blocks="700"} 1\n'
)
VLLM_MODELS = b'{"data": [{"id": "m", "owned_by": "vllm"}]}'
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
    with pytest.raises(ContactFailed, match="/v1/models: answers over 10000 bytes"):
        await facts_of({b"/v1/models": b'{"data": [' + b" " * 100_000})


async def test_redirects_are_not_followed() -> None:
    """A worker says itself who it is: nobody is asked in its place, nor shown a key."""
    asked = []

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            asked.append(request.split()[1])
            head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\n"
            await connection.send(head + b"Content-Length: 0\r\n\r\n")

    async with RawWorker(script) as worker, aiohttp.ClientSession() as session:
        with pytest.raises(ContactFailed, match="/v1/models answers 307"):
            await contact.ask(session, WorkerSpec(url=worker.url), "k")
    assert asked == [b"/v1/models"]


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
    assert seen == [True] * 5


@pytest.mark.parametrize(
    ("statuses", "api"),
    [
        ({"chat/completions": 405, "generate": 405}, "chat"),
        ({"chat/completions": 405, "generate": 405, "abort": 405}, "tokens"),
        ({"chat/completions": 405, "abort": 405, "server_info": 200}, "chat"),
        ({"generate": 405}, "tokens"),
        ({"generate": 403}, None),
        ({"chat/completions": 500, "generate": 405}, None),
        ({}, None),
    ],
)
async def test_what_a_worker_takes_is_told_by_its_routes(
    statuses: dict[str, int], api: str | None
) -> None:
    """Chats, or token ids only; what fails says nothing."""

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            path = request.split()[1].decode()
            found = next((s for name, s in statuses.items() if name in path), 404)
            if path == "/v1/models":
                await connection.send(json_answer(VLLM_MODELS))
            else:
                await connection.send(json_answer(b"{}", status=b"%d X" % found))

    async with RawWorker(script) as worker, aiohttp.ClientSession() as session:
        facts = await contact.ask(session, WorkerSpec(url=worker.url), None)
    assert facts.api == api
