"""What cannot be rendered is routed without ids: never an error of the gateway's."""

import asyncio
import gzip
import json
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.vllm.api import VllmApi
from tests.proxy.raw import RawClient, RawWorker, answering, json_answer
from tests.running import MODEL, SIM, Running, StartGateway, StartWorker

LONG = "What do the harbours of the north have in common? " * 20
UNLISTED = msgspec.structs.replace(SIM, served_model_name=("nobody/has-this-model",))

pytestmark = pytest.mark.usefixtures("never_blocks")


def body(content: Any = LONG, **fields: Any) -> dict[str, Any]:
    """A chat body of one message."""
    messages = [{"role": "user", "content": content}]
    return {"model": MODEL, "messages": messages, "max_tokens": 4} | fields


async def reasons(gateway: Running) -> dict[str, float]:
    """The reasons of requests that were not rendered, with their counts."""
    prefix = "kv_gateway_not_rendered_total"
    return {
        name.split('"')[1]: value
        for name, value in (await gateway.metrics()).items()
        if name.startswith(prefix) and value
    }


async def post(gateway: Running, data: bytes, **headers: str) -> tuple[int, bytes]:
    """Status and body of the answer to a chat body of any bytes."""
    url = gateway.url + "/v1/chat/completions"
    kinds = {"Content-Type": "application/json"} | headers
    async with gateway.client.post(url, data=data, headers=kinds) as response:
        return response.status, await response.read()


def render_with(gateway: Running, render: Callable[[bytes], object]) -> None:
    """Have this gateway, and not its simulated workers, render chats so."""
    stand_in = SimpleNamespace(render_chat=render, profile="vllm")
    renderers: Any = gateway.gateway.renderers
    renderers.find = lambda *names: stand_in


NO_JSON = [
    (b"", "empty"),
    (b"no json", "not_json"),
    (b"[1, 2]", "not_object"),
    (b'"text"', "not_object"),
    (b'{"model": "\xff\xfe"}', "bad_messages"),
    (b'{"temperature": NaN}', "bad_json"),
    (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "too_deep"),
    (b'{"messages": [', "not_json"),
]


@pytest.mark.parametrize(
    ("data", "reason"), NO_JSON, ids=[f"{d[:10]!r}" for d, _ in NO_JSON]
)
async def test_what_is_no_json_goes_to_a_worker(
    start_worker: StartWorker, start_gateway: StartGateway, data: bytes, reason: str
) -> None:
    """The worker's answer to a bad body is the client's."""
    worker = await start_worker()
    gateway = await start_gateway(worker)
    status, answer = await post(gateway, data)
    async with aiohttp.ClientSession() as direct:
        url = worker.url + "/v1/chat/completions"
        headers = {"Content-Type": "application/json"}
        async with direct.post(url, data=data, headers=headers) as response:
            assert (status, answer) == (response.status, await response.read())
    assert 400 <= status < 500
    assert await reasons(gateway) == {reason: 1}
    assert await gateway.metric("inflight_requests") == 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"messages": []}, "bad_messages"),
        ({"messages": "text"}, "bad_messages"),
        ({"messages": None}, "bad_messages"),
        ({"messages": [17]}, "bad_messages"),
        (body([{"type": "image_url", "image_url": {"url": "x"}}]), "media"),
        ({"chat_template": "{{ messages }}"}, "request_template"),
        ({"chat_template_kwargs": 5}, "bad_field"),
        ({"tools": "all"}, "bad_field"),
    ],
)
async def test_what_cannot_be_rendered(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    fields: dict[str, Any],
    reason: str,
) -> None:
    """It is sent as it is, and counted with the renderer's reason."""
    gateway = await start_gateway(await start_worker())
    status, _ = await post(gateway, json.dumps(body() | fields).encode())
    assert status in (200, 400, 422)
    assert await reasons(gateway) == {reason: 1}


async def test_a_string_of_a_hundred_megabytes(start_gateway: StartGateway) -> None:
    """It goes through whole, without ids."""
    async with RawWorker(answering(json_answer(b'{"data": []}'))) as worker:
        gateway = await start_gateway(worker.url)
        data = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (
            b"x" * 100_000_000
        )
        async with RawClient(gateway.port) as client:
            await client.post(data)
            head, _ = await client.answer()
        assert head.startswith(b"HTTP/1.1 200")
        assert worker.requests[-1].endswith(data)
        assert await reasons(gateway) == {"too_large": 1}


async def test_above_max_body(start_gateway: StartGateway) -> None:
    """413, before any worker hears of it."""
    async with RawWorker(answering(json_answer(b'{"data": []}'))) as worker:
        gateway = await start_gateway(worker.url, max_body=1000)
        before = len(worker.requests)
        status, answer = await post(gateway, json.dumps(body()).encode())
        assert status == 413
        assert json.loads(answer)["error"]["code"] == "body_too_large"
        assert len(worker.requests) == before


async def test_encoded_bodies_are_the_workers_to_read(
    start_gateway: StartGateway,
) -> None:
    """A compressed body arrives as it was sent."""
    async with RawWorker(answering(json_answer(b'{"data": []}'))) as worker:
        gateway = await start_gateway(worker.url)
        data = gzip.compress(json.dumps(body()).encode())
        status, _ = await post(gateway, data, **{"Content-Encoding": "gzip"})
        assert status == 200
        assert worker.requests[-1].endswith(data)
        assert b"Content-Encoding: gzip" in worker.requests[-1]
        assert await reasons(gateway) == {"encoded_body": 1}


async def test_late_renderings_are_not_waited_for(
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """After the deadline a request goes without ids.

    Its second turn still goes where the first went, by raw content.
    """
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, render_deadline=0.02, render_threads=8)
    render_with(gateway, lambda body: time.sleep(1.0))
    await second_turns(gateway, MODEL)
    assert await reasons(gateway) == {"deadline": 8}
    assert 8 * 0.02 <= await gateway.metric("render_seconds_sum") < 8 * 1.0


async def test_full_render_queue(
    start_worker: StartWorker,
    start_gateway: StartGateway,
) -> None:
    """More than the queue holds goes without ids, before any deadline."""
    gateway = await start_gateway(
        await start_worker(), render_queue=1, render_threads=1, render_deadline=30.0
    )
    go_on = threading.Event()
    other = gateway.gateway.render_pool.run(lambda: go_on.wait(30), 0)
    rendering = asyncio.create_task(other)
    try:
        await gateway.ask("/v1/chat/completions", body())
        assert await reasons(gateway) == {"queue_full": 1}
    finally:
        go_on.set()
        await rendering


async def test_a_fault_in_rendering_costs_no_answer(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug of the renderer's is logged and counted; the request is answered."""
    gateway = await start_gateway(await start_worker())

    def broken(body: bytes) -> None:
        raise AssertionError("a bug")

    render_with(gateway, broken)
    await gateway.ask("/v1/chat/completions", body())
    assert await reasons(gateway) == {"internal_error": 1}
    assert await gateway.metric("internal_errors_total", where="render") == 1
    assert LONG[:20] not in caplog.text


async def second_turns(gateway: Running, model: str) -> None:
    """Four chats of two turns; each second turn must go where its first went."""
    chats = [body(f"{n}: {LONG}", model=model) for n in range(4)]
    firsts = [await gateway.ask("/v1/chat/completions", chat) for chat in chats]
    assert len({answer.worker for answer in firsts}) == 2
    for chat, first in reversed(list(zip(chats, firsts, strict=True))):
        chat["messages"] += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "and then?"},
        ]
        second = await gateway.ask("/v1/chat/completions", chat)
        assert second.worker == first.worker


async def test_a_model_that_is_not_here(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without --model the workers name one; what is not here is routed by content.

    One line says so.
    """
    with caplog.at_level(logging.WARNING):
        workers = [await start_worker(UNLISTED) for _ in range(2)]
        for worker in workers:  # as if the workers were on another machine
            assert isinstance(worker.api, VllmApi)
            worker.api._models._root = "/nowhere/model"
        gateway = await start_gateway(*workers, model=())
    lines = [r.getMessage() for r in caplog.records if "not rendered" in r.getMessage()]
    assert len(lines) == 1
    assert "nobody/has-this-model" in lines[0]
    await second_turns(gateway, "nobody/has-this-model")
    assert await reasons(gateway) == {"no_model": 8}


async def test_models_are_asked_of_the_workers(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Without --model what a worker lists is rendered, if its directory is here."""
    worker = await start_worker(UNLISTED)
    gateway = await start_gateway(worker, model=())
    await gateway.ask("/v1/chat/completions", body(model="nobody/has-this-model"))
    assert await reasons(gateway) == {}


async def test_render_never(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Switched off, all is routed by raw content; nothing is loaded."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, render="never", model=((None, "/nope"),))
    await second_turns(gateway, MODEL)
    assert await reasons(gateway) == {"switched_off": 8}
    assert await gateway.metric("predicted_hit_tokens_total") > 0
    assert await gateway.metric("prediction_error_tokens_total") == 0


async def test_raw_completions_too(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The raw prompt of a completion stands in for its ids as well."""
    workers = [await start_worker() for _ in range(2)]
    gateway = await start_gateway(*workers, render="never")
    for n in range(4):
        prompt = f"{n}: {LONG}"
        fields = {"model": MODEL, "max_tokens": 4}
        first = await gateway.ask("/v1/completions", fields | {"prompt": prompt})
        more = {"prompt": prompt + "And what sets them apart?"}
        second = await gateway.ask("/v1/completions", fields | more)
        assert second.worker == first.worker


async def test_tools_come_before_messages(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Raw content of other tools is another prefix: templates put tools first."""
    gateway = await start_gateway(await start_worker(), render="never")

    def with_tool(name: str) -> dict[str, Any]:
        tool = {"type": "function", "function": {"name": name * 30}}
        return body(tools=[tool])

    held = []
    for name in ("a", "b", "a"):
        explained = await gateway.post("/gateway/explain", with_tool(name))
        held.append(explained["workers"][0]["history_tokens"])
        await gateway.ask("/v1/chat/completions", with_tool(name))
    assert held[0] == held[1] == 0
    assert held[2] > 100
