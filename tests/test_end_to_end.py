"""The main job over real sockets: requests reach the worker that holds their prefix."""

import asyncio
from typing import Any

import msgspec
import openai
import pytest

from simworker.options import SimOptions
from simworker.server import SimWorker
from tests.running import (
    MODEL,
    SIM,
    WITH_EVENTS,
    Running,
    StartGateway,
    StartWorker,
)

SYSTEM = {"role": "system", "content": "Answer briefly, and stay kind. " * 40}
CHAT_TEXT = "Tell me something new about harbours and the ships in them. " * 12


def opening(topic: str) -> list[dict[str, Any]]:
    """The messages of a chat's first turn."""
    return [SYSTEM, {"role": "user", "content": f"{topic}: {CHAT_TEXT}"}]


async def settle(gateway: Running, workers: list[SimWorker]) -> None:
    """Wait until the gateway knows what the workers' events say, if they have any."""
    with_events = [w for w in workers if w.publisher and w.publisher.next_sequence]
    await gateway.until_events_arrive(*with_events)


@pytest.mark.parametrize(
    "options", [WITH_EVENTS, SIM], ids=["with events", "without events"]
)
async def test_a_chat_stays_where_its_prefix_is(
    options: SimOptions, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Each turn goes to the worker of the turn before, for what it holds of it.

    With events predicted equals delivered; without, the blocks that end in an answer
    cannot be foreseen, at most one a turn here.
    """
    workers = [await start_worker(options) for _ in range(3)]
    gateway = await start_gateway(*workers)
    chats = [opening(topic) for topic in ("Oslo", "Genoa", "Lagos", "Lima")]
    firsts = []
    for turn in range(3):
        for number, messages in enumerate(chats):
            answer = await gateway.chat(messages)
            if turn == 0:
                firsts.append(answer.worker)
            assert answer.worker == firsts[number]
            await settle(gateway, workers)
            messages.append({"role": "assistant", "content": answer.text})
            messages.append({"role": "user", "content": f"And {turn}? {CHAT_TEXT}"})
    predicted, delivered = await gateway.hits()
    unforeseen = 0 if options.kv_events else 16 * 2 * len(chats)
    assert 4 * 200 < predicted <= delivered <= predicted + unforeseen
    error = await gateway.metric("prediction_error_tokens_total")
    assert error == delivered - predicted
    assert await gateway.metric("uncompared_requests_total") == 0
    state = "live" if options.kv_events else "estimated"
    assert (await gateway.feed())["state"] == state


async def test_many_chats_at_once_with_small_caches(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Chats side by side over caches that evict: predictions stay near deliveries."""
    small = msgspec.structs.replace(WITH_EVENTS, blocks=190, speed=20.0)
    workers = [await start_worker(small) for _ in range(3)]
    gateway = await start_gateway(*workers)

    async def chat(number: int) -> None:
        messages = opening(f"Harbour {number}")
        for turn in range(4):
            answer = await gateway.chat(messages)
            messages.append({"role": "assistant", "content": answer.text})
            messages.append({"role": "user", "content": f"And {turn}? {CHAT_TEXT}"})

    async with asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(chat(number))
    assert await gateway.metric("kv_events_total", kind="removed") > 0
    _, delivered = await gateway.hits()
    assert delivered > 0.4 * await gateway.metric("reported_prompt_tokens_total")
    error = await gateway.metric("prediction_error_tokens_total")
    assert error <= 0.25 * delivered  # evicted between decision and prefill
    assert await gateway.metric("inflight_requests") == 0
    assert await gateway.metric("inflight_uncached_tokens") == 0


async def test_explained_as_decided(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What explain says of a second turn is what then happens."""
    workers = [await start_worker(WITH_EVENTS) for _ in range(2)]
    gateway = await start_gateway(*workers)
    messages = opening("Rotterdam")
    first = await gateway.chat(messages)
    await settle(gateway, workers)
    explained = await gateway.post(
        "/gateway/explain", {"model": MODEL, "messages": messages}
    )
    again = await gateway.chat(messages)
    assert explained["chosen"] == {"url": first.worker, "rank": 0}
    by_url = {entry["url"]: entry for entry in explained["workers"]}
    assert by_url[first.worker]["held_tokens"] == again.cached > 0
    assert explained["prompt_tokens"] == again.body["usage"]["prompt_tokens"]
    assert explained["rendered"] is True


async def test_mixed_block_sizes(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Workers with blocks of 16 and 32 tokens: each is matched by its own size."""
    workers = [
        await start_worker(msgspec.structs.replace(WITH_EVENTS, block_size=size))
        for size in (16, 32)
    ]
    gateway = await start_gateway(*workers)
    topics = ("Piraeus", "Busan", "Santos", "Durban")
    chats = [[{"role": "user", "content": f"{t}: {CHAT_TEXT}"}] for t in topics]
    firsts = [await gateway.chat(messages) for messages in chats]
    assert {answer.worker for answer in firsts} == {worker.url for worker in workers}
    await settle(gateway, workers)
    for messages, first in zip(chats, firsts, strict=True):
        assert (await gateway.chat(messages)).worker == first.worker
        await settle(gateway, workers)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0
    sizes = [
        w["block_size"] for w in (await gateway.get("/gateway/workers"))["workers"]
    ]
    assert sizes == [16, 32]


async def test_two_models(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A request goes to a worker that lists its model; an unknown one gets its 404."""
    named = [
        await start_worker(
            msgspec.structs.replace(WITH_EVENTS, served_model_name=(name,))
        )
        for name in ("small", "large")
    ]
    gateway = await start_gateway(*named)
    for _ in range(3):
        for name, worker in zip(("small", "large"), named, strict=True):
            answer = await gateway.chat(opening("Kiel"), model=name)
            assert answer.worker == worker.url
            assert answer.body["model"] == name
    body = {"model": "absent", "messages": opening("Kiel")}
    refusal = await gateway.post("/v1/chat/completions", body, status=404)
    direct = named[0].url + "/v1/chat/completions"
    async with gateway.client.post(direct, json=body) as response:
        assert refusal == await response.json()
    listed = await gateway.get("/v1/models")
    assert [entry["id"] for entry in listed["data"]] == ["small", "large"]


async def test_salts_are_apart(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What was cached under one salt is neither predicted nor found under another."""
    worker = await start_worker(WITH_EVENTS)
    gateway = await start_gateway(worker)
    for salt, cached in ((None, False), ("a", False), ("a", True), ("b", False)):
        fields = {} if salt is None else {"cache_salt": salt}
        answer = await gateway.chat(opening("Split"), **fields)
        assert (answer.cached > 0) is cached
        await settle(gateway, [worker])
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0


async def test_adapters_are_apart(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """An adapter's blocks are not its base model's."""
    options = msgspec.structs.replace(
        WITH_EVENTS, lora_modules=("tuned=/adapters/tuned",)
    )
    worker = await start_worker(options)
    gateway = await start_gateway(worker)
    for model, cached in ((MODEL, False), ("tuned", False), ("tuned", True)):
        answer = await gateway.chat(opening("Bari"), model=model)
        assert (answer.cached > 0) is cached
        await settle(gateway, [worker])
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0


async def test_completions(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Text, ids, and lists of either go where their like went before."""
    workers = [await start_worker(WITH_EVENTS) for _ in range(2)]
    gateway = await start_gateway(*workers)
    ids = [7 + n % 1000 for n in range(400)]
    prompts: list[Any] = [CHAT_TEXT, ids, [CHAT_TEXT + "more"], [ids[::-1]]]
    for prompt in prompts:
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 4}
        first = await gateway.ask("/v1/completions", body)
        await settle(gateway, workers)
        second = await gateway.ask("/v1/completions", body)
        assert second.worker == first.worker
        assert second.cached >= 96
        await settle(gateway, workers)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered > 0
    assert await gateway.metric("not_rendered_total") == 0


async def test_the_openai_client(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """What people's programs use: models, a chat, a stream with usage, an error."""
    workers = [await start_worker(WITH_EVENTS) for _ in range(2)]
    gateway = await start_gateway(*workers)
    async with openai.AsyncOpenAI(
        base_url=gateway.url + "/v1", api_key="k", max_retries=0
    ) as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        messages: Any = opening("Hull")
        answer = await client.chat.completions.create(
            model=MODEL, messages=messages, max_completion_tokens=8
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        await settle(gateway, workers)
        text, usage = "", None
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=messages,
            max_completion_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for event in stream:
            usage = event.usage or usage
            text += "".join(choice.delta.content or "" for choice in event.choices)
        assert text == answer.choices[0].message.content
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert (usage.prompt_tokens_details.cached_tokens or 0) > 100
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.chat.completions.create(model="none", messages=messages)
    predicted, delivered = await gateway.hits()
    assert predicted == delivered == usage.prompt_tokens_details.cached_tokens


async def test_several_prompts_go_to_one_worker(
    start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """A list of prompts is one request to one worker, by its longest prompt.

    What is reported as cached is of one of them: there is nothing to compare it with.
    """
    workers = [await start_worker(WITH_EVENTS) for _ in range(2)]
    gateway = await start_gateway(*workers)
    body = {"model": MODEL, "prompt": ["short", CHAT_TEXT], "max_tokens": 4}
    first = await gateway.ask("/v1/completions", body)
    assert len(first.body["choices"]) == 2
    await settle(gateway, workers)
    second = await gateway.ask("/v1/completions", body)
    assert second.worker == first.worker
    assert await gateway.metric("uncompared_requests_total") == 2
    assert await gateway.hits() == (0, 0)
