"""What is special about workers that take token ids only: refusals, stops, the end."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.gateway.forwarding_rig import Bodies
from tests.gateway.tokens.rig import (
    CHAT,
    COMPLETIONS,
    TOKENS,
    answering,
    ask,
    chat,
    neutral,
)
from tests.running import MODEL, SIM, StartGateway, StartWorker, until

TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}
CALL = (
    '<tool_call>\n{"name": "tide", "arguments": {"harbour": "Ålesund"}}\n</tool_call>'
)
PARSERS = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
SLOW = msgspec.structs.replace(TOKENS, speed=1.0)


async def test_reasoning_and_calls_are_read_out_of_the_ids(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    tmp_path: Path,
) -> None:
    """Whole and streamed alike; the finish says that there are calls."""
    said = f"<think>\nIt asks.\n</think>\n\nOne moment.\n{CALL}\n{CALL}"
    answer = {"match": "tide", "output_text": said}
    worker = await start_worker(answering(TOKENS, tmp_path / "answers", answer))
    gateway = await start_gateway(worker, **PARSERS)
    asked = {"role": "user", "content": "When is the tide?"}
    body = chat(asked, tools=[TOOL], max_tokens=200)
    whole = (await ask(client, gateway.url, body)).body
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning"].strip() == "It asks."
    assert choice["message"]["content"].strip() == "One moment."
    calls = choice["message"]["tool_calls"]
    functions = [call["function"] for call in calls]
    assert functions == [{"name": "tide", "arguments": '{"harbour": "Ålesund"}'}] * 2
    assert len({call["id"] for call in calls}) == 2
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] > 3
    options = {"include_usage": True}
    streamed = await ask(
        client, gateway.url, body | {"stream": True, "stream_options": options}
    )
    deltas = [e["choices"][0]["delta"] for e in streamed.events if e["choices"]]
    reasoning = "".join(delta.get("reasoning") or "" for delta in deltas)
    content = "".join(delta.get("content") or "" for delta in deltas)
    assert reasoning == choice["message"]["reasoning"]
    assert content == choice["message"]["content"]
    told = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["function"] for call in told] == functions
    assert [call["index"] for call in told] == [0, 1]
    assert streamed.events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert streamed.events[-1]["usage"] == {
        name: counts
        for name, counts in whole["usage"].items()
        if name != "prompt_tokens_details"
    } | {"prompt_tokens_details": streamed.events[-1]["usage"]["prompt_tokens_details"]}


@pytest.mark.parametrize("stream", [False, True])
async def test_stop_strings_stop_an_engine_that_knows_none(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    tmp_path: Path,
    stream: bool,
) -> None:
    """The engine is told to end; the answer is that of one that knows them."""
    answer = {"match": "", "output_text": "one two three " * 200}
    taker = await start_worker(answering(SLOW, tmp_path / "answers", answer))
    plain = await start_worker(answering(SIM, tmp_path / "answers", answer))
    gateway = await start_gateway(taker)
    body = chat(stop=["three"], max_tokens=600, stream=stream)
    async with asyncio.timeout(5):
        ours = await ask(client, gateway.url, body)
    theirs = await ask(client, plain.url, body)
    if not stream:
        assert neutral(ours.body) == neutral(theirs.body)
        assert ours.body["choices"][0]["stop_reason"] == "three"
    else:
        last = ours.events[-1]["choices"][0]
        assert (last["finish_reason"], last["stop_reason"]) == ("stop", "three")
    await until(lambda: taker.ranks[0].runner.aborted == 1)
    assert await gateway.metric("upstream_failures_total") == 0


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (chat({"role": "user", "content": [{"type": "image_url"}]}), 400, "image"),
        (chat({"role": "user", "content": None}), 400, "content"),
        (chat(messages=[]), 400, "empty conversation"),
        (chat(max_tokens=0), 400, "max_tokens"),
        (chat(n=0), 400, "n must be"),
        (chat(echo=True), 400, "echo"),
        (chat(tools=[TOOL]), 400, "tool"),
        (chat(model="nope"), 404, "nope"),
        (chat({"role": "user", "content": "word " * 50_000}), 400, "context length"),
    ],
)
async def test_what_cannot_be_rendered_is_refused(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    body: Any,
    status: int,
    words: str,
) -> None:
    """Clearly, and no worker hears of it."""
    worker = await start_worker(TOKENS)
    gateway = await start_gateway(worker)
    told = await ask(client, gateway.url, body)
    assert told.status == status, told.text
    assert words in told.body["error"]["message"]
    assert {*told.body["error"]} == {"message", "type", "param", "code"}
    assert worker.api.totals.requests == 0


async def test_what_a_worker_refuses_is_told_in_its_words(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """An id that the model does not have."""
    plain, taker = await start_worker(SIM), await start_worker(TOKENS)
    gateway = await start_gateway(taker)
    body = {"model": MODEL, "prompt": [99_999_999]}
    ours = await ask(client, gateway.url, body, COMPLETIONS)
    theirs = await ask(client, plain.url, body, COMPLETIONS)
    assert ours.status == theirs.status == 400
    assert "99999999 is out of vocabulary" in ours.body["error"]["message"]


async def test_an_encoded_body_cannot_be_rendered(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
) -> None:
    """Where there is no other worker it is refused."""
    worker = await start_worker(TOKENS)
    gateway = await start_gateway(worker)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    packed = gzip.compress(msgspec.json.encode(chat()))
    async with client.post(
        gateway.url + CHAT, data=packed, headers=headers
    ) as response:
        assert response.status == 400
        assert "encoding" in (await response.json())["error"]["message"]


async def test_max_tokens_is_always_said(
    start_worker: StartWorker,
    start_gateway: StartGateway,
    client: aiohttp.ClientSession,
    bodies: Bodies,
) -> None:
    """Else the engine would take all that its context leaves."""
    worker = await start_worker(TOKENS)
    gateway = await start_gateway(worker)
    asked = [
        (CHAT, chat(max_tokens=16)),
        (CHAT, chat(max_tokens=5)),
        (CHAT, chat(max_tokens=None)),
        (COMPLETIONS, {"model": MODEL, "prompt": "x"}),
    ]
    for path, body in asked:
        await ask(client, gateway.url, body, path)
    said = [body["sampling_params"]["max_tokens"] for body in bodies.of(worker)]
    prompt = len(bodies.of(worker)[2]["token_ids"])
    assert said == [16, 5, worker.max_model_len - prompt, 16]
