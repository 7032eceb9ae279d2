"""The render endpoints on the front door: on, off, and for which model."""

import json
import logging
from typing import Any

import msgspec
import pytest

from gateway.access.paths import asked_path
from tests.proxy.raw import RawWorker, WorkerConnection, json_answer
from tests.running import MODEL, SIM, StartGateway, StartWorker

DEAD = "http://127.0.0.1:1"
CHAT = "/v1/chat/completions/render"
PATHS = (CHAT, "/v1/completions/render", "/v1/responses/render")
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
PROMPT = {"model": MODEL, "prompt": "hello"}
INPUT = {"model": MODEL, "input": "hello"}

pytestmark = pytest.mark.usefixtures("never_blocks")


def listing(*models: str, engine: str = "vllm", **fields: Any) -> RawWorker:
    """A worker that lists these models, and answers anything else with "worker"."""
    data = [{"id": m, "owned_by": engine} | fields for m in models]
    listed = json_answer(json.dumps({"data": data}).encode())

    async def script(connection: WorkerConnection) -> None:
        while request := await connection.request():
            asked = asked_path(request.split(b" ", 2)[1])
            answer = listed if asked == "/v1/models" else json_answer(b'"worker"')
            await connection.send(answer)

    return RawWorker(script)


async def test_on(start_worker: StartWorker, start_gateway: StartGateway) -> None:
    """The gateway answers by itself; the worker hears of nothing."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    chat = await gateway.post(CHAT, HELLO)
    assert (chat["kind"], chat["schema_version"]) == ("chat", 1)
    (item,) = await gateway.post("/v1/completions/render", PROMPT)
    assert item["kind"] == "completion"
    responses = await gateway.post("/v1/responses/render", INPUT)
    assert responses["token_ids"] == chat["token_ids"]
    rendered = gateway.gateway.renderers.find(MODEL, MODEL)
    assert rendered is not None
    assert len(rendered.render_chat(HELLO)) == len(chat["token_ids"])
    assert await gateway.metric("requests_total", endpoint="chat_render") == 1
    assert await gateway.metric("not_rendered_total") == 0
    assert await gateway.metric("inflight_requests") == 0
    assert (await gateway.get(CHAT, 405))["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("off", [{"render_endpoints": False}, {"render": "never"}])
async def test_off(start_gateway: StartGateway, off: dict[str, Any]) -> None:
    """The paths reach a worker, whose answer comes back."""
    async with listing(MODEL) as worker:
        gateway = await start_gateway(worker.url, **off)
        for path in PATHS:
            assert await gateway.post(path, HELLO) == "worker"
            assert worker.requests[-1].startswith(b"POST " + path.encode())


async def test_unknown_models(start_gateway: StartGateway) -> None:
    """404 with the names there are, in OpenAI's shape; none: the first model."""
    async with listing("one", "two") as worker:
        gateway = await start_gateway(worker.url)
        error = (await gateway.post(CHAT, HELLO | {"model": "nope"}, 404))["error"]
        assert (error["param"], error["code"]) == ("model", 404)
        assert "one" in error["message"]
        assert "two" in error["message"]
        for name in ("one", "two"):
            answer = await gateway.post(CHAT, HELLO | {"model": name})
            assert answer["model"] == name
        nameless = {k: v for k, v in HELLO.items() if k != "model"}
        assert (await gateway.post(CHAT, nameless))["token_ids"]


async def test_models_that_are_not_rendered(start_gateway: StartGateway) -> None:
    """404 that names the option which would help."""
    async with listing("one", "two") as worker:
        gateway = await start_gateway(worker.url, model=(("one", MODEL),))
        assert (await gateway.post(CHAT, HELLO | {"model": "one"}))["token_ids"]
        error = (await gateway.post(CHAT, HELLO | {"model": "two"}, 404))["error"]
        assert "--model two=DIR_OR_ID" in error["message"]


async def test_without_any_worker(start_gateway: StartGateway) -> None:
    """The configured model is rendered though nobody can answer it."""
    gateway = await start_gateway(DEAD)
    assert (await gateway.post(CHAT, HELLO))["token_ids"]
    named = await start_gateway(DEAD, model=(("mine", MODEL),))
    assert (await named.post(CHAT, HELLO | {"model": "mine"}))["model"] == "mine"
    await named.post(CHAT, HELLO, 404)


async def test_before_any_worker_has_told_its_models(
    start_gateway: StartGateway,
) -> None:
    """503: it is not for want of an option, and another time it may be rendered."""
    gateway = await start_gateway(DEAD, model=())
    error = (await gateway.post(CHAT, HELLO, 503))["error"]
    assert "No worker has told its models yet" in error["message"]


async def test_the_workers_context_length(start_gateway: StartGateway) -> None:
    """A prompt may be as long as the workers say; the option wins over them."""
    body = HELLO | {"messages": [{"role": "user", "content": "word " * 200}]}
    async with listing(MODEL, max_model_len=64) as worker:
        gateway = await start_gateway(worker.url)
        error = (await gateway.post(CHAT, body, 400))["error"]
        assert error["param"] == "input_tokens"
        longer = await start_gateway(worker.url, max_model_len=4096)
        assert (await longer.post(CHAT, body))["token_ids"]


async def test_large_bodies(start_gateway: StartGateway) -> None:
    """What would hold up the event loop is refused: 413."""
    gateway = await start_gateway(DEAD, max_render_bytes=1000)
    body = HELLO | {"messages": [{"role": "user", "content": "x" * 1000}]}
    assert (await gateway.post(CHAT, body, 413))["error"]["code"] == "body_too_large"


async def test_parsers_and_dialect(start_gateway: StartGateway) -> None:
    """The options of the render server are the gateway's, too."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    async with listing(MODEL) as worker:
        plain = await start_gateway(worker.url)
        body = HELLO | {"tools": [tool]}
        assert "--tool-call-parser" in json.dumps(await plain.post(CHAT, body, 400))
        able = await start_gateway(
            worker.url, tool_call_parser="hermes", render_dialect="trtllm"
        )
        assert "sampling_params" not in await able.post(CHAT, body)
        flat = await able.post(CHAT, body | {"model": "nope"}, 404)
        assert (flat["object"], flat["code"]) == ("error", 404)
        # Other routes keep OpenAI's shape.
        assert "error" in await able.get("/nothing", 404)


async def test_profiles_of_the_fleet(
    start_gateway: StartGateway, caplog: pytest.LogCaptureFixture
) -> None:
    """The workers' if they agree at the start, else vllm; --profile wins."""

    async def request_id(*urls: str, **options: Any) -> str:
        gateway = await start_gateway(*urls, **options)
        (item,) = await gateway.post("/v1/completions/render", PROMPT)
        return str(item["request_id"])

    async with listing(MODEL, engine="trtllm") as trtllm, listing(MODEL) as vllm:
        assert (await request_id(trtllm.url)).endswith("-0")
        assert not (await request_id(vllm.url)).endswith("-0")
        with caplog.at_level(logging.WARNING, logger="gateway"):
            assert not (await request_id(trtllm.url, vllm.url)).endswith("-0")
        (line,) = [r.message for r in caplog.records if "renders as" in r.message]
        assert trtllm.url in line
        assert "--profile trtllm" in line
        assert (await request_id(vllm.url, profile="trtllm")).endswith("-0")


async def test_responses_are_rendered_for_routing(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Self-contained ones by their ids; what refers to others by raw content."""
    async with listing(MODEL) as worker:
        gateway = await start_gateway(worker.url)
        text = "What do harbours have in common? " * 30
        whole = {"model": MODEL, "input": text, "instructions": "Be kind."}
        assert await gateway.post("/v1/responses", whole) == "worker"
        assert await gateway.metric("not_rendered_total") == 0
        explained = await gateway.post("/gateway/explain", whole)
        assert explained["rendered"] is True
        renderer = gateway.gateway.renderers.find(MODEL, MODEL)
        assert renderer is not None
        assert explained["prompt_tokens"] == len(renderer.render_responses(whole))
        linked = whole | {"previous_response_id": "resp_1"}
        assert await gateway.post("/v1/responses", linked) == "worker"
        assert await gateway.metric("not_rendered_total") == 1
        assert await gateway.get("/v1/responses") == "worker"
        assert await gateway.get("/v1/responses/resp_1") == "worker"


async def test_responses_stay_where_their_prefix_is(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A chat and a response of equal ids meet at one worker."""
    options = msgspec.structs.replace(SIM)
    workers = [await start_worker(options), await start_worker(options)]
    gateway = await start_gateway(*workers)
    text = "What do the harbours of the north have in common? " * 30
    messages = [{"role": "user", "content": text}]
    chosen = (await gateway.chat(messages)).worker
    for _ in range(3):
        explained = await gateway.post(
            "/gateway/explain", {"model": MODEL, "input": text}
        )
        assert explained["chosen"]["url"] == chosen


async def test_a_mixed_fleet_is_matched_by_each_engines_ids(
    start_gateway: StartGateway,
) -> None:
    """A request is rendered once by each engine's rules among its candidates."""
    text = "What do harbours have in common? " * 30
    parts = [{"type": "text", "text": text}, {"type": "text", "text": text}]
    body = {"model": MODEL, "messages": [{"role": "user", "content": parts}]}
    async with listing(MODEL) as vllm, listing(MODEL, engine="sglang") as sglang:
        gateway = await start_gateway(vllm.url, sglang.url)
        workers = {w.url: w.profile for w in gateway.gateway.pool.workers}
        assert workers == {vllm.url: "vllm", sglang.url: "sglang"}
        explained = await gateway.post("/gateway/explain", body)
        assert explained["rendered"] is True
        for _ in range(4):
            assert await gateway.post("/v1/chat/completions", body) == "worker"
        held = [
            worker["history_tokens"]
            for worker in (await gateway.post("/gateway/explain", body))["workers"]
        ]
        assert max(held) > 300
