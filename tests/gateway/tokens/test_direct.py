"""Calls that bring token ids along: routed by these, passed on as they are."""

import json
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.tokens import calls, direct
from gateway.tokens.call_body import fields_of
from tests.gateway.forwarding_rig import Bodies, known
from tests.gateway.tokens.rig import TOKENS_WITH_EVENTS, ask
from tests.running import MODEL, SIM, WITH_EVENTS, Running, StartGateway, StartWorker

GENERATE = "/inference/v1/generate"
IDS = list(range(1000, 1100))


def vllm(ids: list[int] = IDS, **fields: Any) -> dict[str, Any]:
    """A GenerateRequest."""
    sampling = {"max_tokens": 4, "temperature": 0}
    return {"model": MODEL, "token_ids": ids, "sampling_params": sampling} | fields


def image(hash_: str, offset: int = 4, length: int = 80) -> dict[str, Any]:
    """The features of a prompt with one image in it."""
    place = {"offset": offset, "length": length}
    return {
        "mm_hashes": {"image": [hash_]},
        "mm_placeholders": {"image": [place]},
        "kwargs_data": {"image": ["b" * 100]},
        "mm_metadata": None,
    }


async def test_equal_ids_go_where_they_were(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """And hits are predicted as they are delivered."""
    workers = [await start_worker(WITH_EVENTS), await start_worker(TOKENS_WITH_EVENTS)]
    gateway = await start_gateway(*workers)
    seen = set()
    for _ in range(4):
        told = await ask(client, gateway.url, vllm(), GENERATE)
        assert told.status == 200
        assert told.body["request_id"] == "generate-tokens-same"
        seen.add(told.headers["X-Sim-Worker"])
        await gateway.until_events_arrive(*workers)
    assert len(seen) == 1
    assert await gateway.hits() == (3 * 96, 3 * 96)


async def test_media_are_told_apart_by_their_hashes(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Placeholders are equal ids: what is predicted is what the worker then finds."""
    worker = await start_worker(TOKENS_WITH_EVENTS)
    gateway = await start_gateway(worker)
    cached = []
    for hash_ in ("one", "two", "one", "two"):
        body = vllm(features=image(hash_))
        told = await ask(client, gateway.url, body, GENERATE)
        details = told.body["usage"]["prompt_tokens_details"]
        cached.append(details["cached_tokens"])
        await gateway.until_events_arrive(worker)
    assert cached == [0, 0, 96, 96]
    assert await gateway.hits() == (192, 192)
    await ask(client, gateway.url, vllm(features=image("one", 5)), GENERATE)
    assert await gateway.hits() == (192, 192)


async def test_what_is_not_read_travels_both_ways(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    bodies: Bodies,
) -> None:
    """The body reaches the worker as it was, and its answer the client."""
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    body = vllm(
        features=image("x" * 64),
        kv_transfer_params={"do_remote_decode": True, "deep": {"a": [1, None]}},
        ec_transfer_params={"peer": "p"},
        unknown=[1.5],
    )
    told = await ask(client, gateway.url, body, GENERATE)
    assert bodies.of(worker) == [body]
    assert told.body["kv_transfer_params"] == body["kv_transfer_params"]
    assert told.body["ec_transfer_params"] == {"peer": "p"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"token_ids": []},
        {"token_ids": [-1], "sampling_params": {}},
        {"token_ids": "x", "sampling_params": {}},
        vllm(content_parts=[{"type": "image_url", "url": "data:,"}]),
        vllm(features={"mm_hashes": {"image": ["a", "b"]}, "mm_placeholders": {}}),
        vllm(features={"mm_hashes": 3}),
        vllm(features=image("h", 0, 1 << 40)),
        vllm(ids=[1 << 33]),
    ],
)
async def test_the_worker_decides_what_a_call_is_worth(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    body: Any,
) -> None:
    """Status and words are the worker's, whatever is in the body."""
    worker = await start_worker(SIM)
    gateway = await start_gateway(worker)
    theirs = await ask(client, worker.url, body, GENERATE)
    ours = await ask(client, gateway.url, body, GENERATE)
    assert ours.status == theirs.status
    assert ours.body.get("error") == theirs.body.get("error")


async def test_a_large_call_is_routed_by_its_ids_too(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Megabytes of an image's data are passed over."""
    worker = await start_worker(TOKENS_WITH_EVENTS)
    gateway = await start_gateway(worker)
    features = image("big") | {"kwargs_data": {"image": ["A" * (3 << 20)]}}
    for _ in range(2):
        told = await ask(client, gateway.url, vllm(features=features), GENERATE)
        assert told.status == 200
        await gateway.until_events_arrive(worker)
    assert await gateway.hits() == (96, 96)


async def test_other_engines_are_not_asked(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call goes to a worker of the engine whose call it is, if there is one."""
    of = {
        engine: await start_worker(msgspec.structs.replace(SIM, engine=engine))
        for engine in ("vllm", "sglang", "trtllm")
    }
    gateway = await start_gateway(*of.values())
    sglang = {"input_ids": IDS, "sampling_params": {"max_new_tokens": 3}}
    trtllm = {
        "schema_version": 1,
        "kind": "completion",
        "token_ids": IDS,
        "request": {"model": MODEL, "prompt": IDS, "max_tokens": 3},
    }
    calls = (
        (GENERATE, vllm(), "vllm"),
        ("/generate", sglang, "sglang"),
        ("/generate", trtllm, "trtllm"),
    )
    for path, body, engine in calls * 2:
        told = await ask(client, gateway.url, body, path)
        assert told.status == 200, told.text
        assert told.headers["X-Sim-Worker"] == of[engine].url
    unreadable: tuple[tuple[str, Any, str], ...] = (
        (GENERATE, {"content_parts": [1], "token_ids": IDS}, "vllm"),
        (GENERATE, [], "vllm"),
        ("/generate", {"input_ids": IDS, "image_data": "x"}, "sglang"),
        ("/generate", {"input_ids": []}, "sglang"),
        ("/generate", trtllm | {"token_ids": [], "request": 3}, "trtllm"),
    )
    for path, body, engine in unreadable * 3:
        told = await ask(client, gateway.url, body, path)
        assert told.headers["X-Sim-Worker"] == of[engine].url, body
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_sglangs_calls(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """By ids or by text, whole or streamed; its counts are found."""
    options = msgspec.structs.replace(WITH_EVENTS, engine="sglang", block_size=16)
    worker = await start_worker(options)
    gateway = await start_gateway(worker)
    known(gateway, worker)
    sampling = {"max_new_tokens": 3}
    text = " ".join(f"word{n}" for n in range(40))
    hits = 0
    for prompt in ({"input_ids": IDS}, {"text": text}):
        for stream in (False, True, True):
            body = {**prompt, "sampling_params": sampling, "stream": stream}
            told = await ask(client, gateway.url, body, "/generate")
            assert told.status == 200, told.text
            info = (told.events[-1] if stream else told.body)["meta_info"]
            hits += info["cached_tokens"]
            await gateway.until_events_arrive(worker)
    assert hits > 0
    assert await gateway.hits() == (hits, hits)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("engine", "fields"),
    [
        ("sglang", {"lora_path": "a"}),
        ("sglang", {"extra_key": "x"}),
        ("trtllm", {"lora_request": {"lora_name": "a", "lora_int_id": 7}}),
    ],
)
async def test_what_keeps_calls_apart(
    engine: str,
    fields: dict[str, Any],
    large: bool,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Adapters and extra keys: nothing is predicted of what others have cached."""
    options = msgspec.structs.replace(WITH_EVENTS, engine=engine, block_size=16)
    modules = ("a=/a",) if engine == "sglang" else ()
    worker = await start_worker(msgspec.structs.replace(options, lora_modules=modules))
    gateway = await start_gateway(worker)
    for hits, more in ((0, {}), (0, fields), (96, fields), (2 * 96, {})):
        body: dict[str, Any] = {"input_ids": IDS, **more}
        if engine == "trtllm":
            request = {"model": MODEL, "prompt": IDS, "max_tokens": 3, **more}
            body = {"schema_version": 1, "kind": "completion", "token_ids": IDS}
            body["request"] = request
        body |= {"pad": "x" * (2 << 20)} if large else {}
        told = await ask(client, gateway.url, body, "/generate")
        assert told.status == 200, told.text
        if worker.publisher is not None:
            await gateway.until_events_arrive(worker)
        assert await gateway.hits() == (hits, hits)


async def test_a_gateway_without_a_model_routes_by_ids(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Nothing has to be rendered."""
    worker = await start_worker(WITH_EVENTS)
    gateway: Running = await start_gateway(worker, model=(), render="never")
    for _ in range(2):
        assert (await ask(client, gateway.url, vllm(), GENERATE)).status == 200
        await gateway.until_events_arrive(worker)
    assert await gateway.hits() == (96, 96)
    assert json.loads(json.dumps(await gateway.get("/gateway/index")))["blocks"] > 0


@pytest.mark.parametrize(
    "body",
    [
        {"text": "hello " * 1000},
        {"text": ["hello"] * 1000},
        {"input_ids": [1] * 4000},
        {"input_ids": [[1, 2]] * 1000},
        vllm([1] * 4000),
    ],
)
async def test_a_call_that_is_too_large_is_not_decoded(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, Any],
) -> None:
    """As a chat: what is larger than may be rendered is routed as it is."""
    engine = "vllm" if "token_ids" in body else "sglang"
    options = msgspec.structs.replace(SIM, engine=engine)
    workers = [await start_worker(options) for _ in range(2)]
    gateway = await start_gateway(*workers, max_render_bytes=4000)
    read = []
    monkeypatch.setattr(direct, "read", lambda *call: read.append(call))
    path = GENERATE if engine == "vllm" else "/generate"
    sampling = {"sampling_params": {"max_new_tokens": 1, "max_tokens": 1}}
    told = await ask(client, gateway.url, body | sampling, path)
    assert told.status == 200
    assert read == []
    counted = await gateway.metric("not_rendered_total", reason="too_large")
    assert counted == 1


async def test_a_text_is_not_decoded_on_the_loop() -> None:
    """Nor in a thread, to be written anew: it is handed on as it came."""
    text = json.dumps("x" * (4 << 20)).encode()
    fields = await fields_of(b'{"text":%b}' % text)
    told = calls.read("/generate", fields)
    assert told.texts == b'{"prompt":%b}' % text
