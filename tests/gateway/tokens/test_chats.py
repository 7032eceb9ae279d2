"""Chats with a worker that takes token ids only: no client can tell."""

from typing import Any

import aiohttp
import pytest

from simworker.server import SimWorker
from tests.gateway.tokens.rig import CHAT, COMPLETIONS, TOKENS, ask, chat, neutral
from tests.running import MODEL, SIM, Running, StartGateway, StartWorker

BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "long": {"max_tokens": 200},
    "ended by its end": {"max_tokens": 2000},
    "no limit": {"max_tokens": None},
    "the engine's own limit": {"max_tokens": 16},
    "newer limit": {"max_tokens": None, "max_completion_tokens": 7},
    "several": {"n": 3, "seed": 5},
    "ids": {"return_token_ids": True},
    "logprobs": {"logprobs": True},
    "top logprobs": {"logprobs": True, "top_logprobs": 1},
    "stop": {"stop": ["e "], "max_tokens": 60},
    "stop shown": {"stop": "e ", "include_stop_str_in_output": True, "max_tokens": 60},
    "no end": {"ignore_eos": True, "max_tokens": 90},
    "unicode": {"messages": [{"role": "user", "content": "Grüße, 世界 👩‍👩‍👧"}]},
    "usage": {"stream_options": {"include_usage": True}},
    "running usage": {
        "stream_options": {"include_usage": True, "continuous_usage_stats": True}
    },
}


@pytest.fixture
async def pair(
    start_worker: StartWorker, start_gateway: StartGateway
) -> tuple[SimWorker, Running]:
    """A worker, and a gateway before another that takes ids only."""
    plain, taker = await start_worker(SIM), await start_worker(TOKENS)
    return plain, await start_gateway(taker)


async def test_it_is_found_by_its_routes(pair: tuple[SimWorker, Running]) -> None:
    """The gateway says so of the worker."""
    _, gateway = pair
    page = await gateway.get("/gateway/workers")
    assert [worker["api"] for worker in page["workers"]] == ["tokens"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_answers_are_those_of_a_chat_worker(
    pair: tuple[SimWorker, Running], client: aiohttp.ClientSession, path: str
) -> None:
    """Field by field, whole and streamed."""
    plain, gateway = pair
    for name, fields in BODIES.items():
        body = chat(**fields)
        if path == COMPLETIONS:
            body["prompt"] = body.pop("messages")[0]["content"]
            if body.get("logprobs"):
                body["logprobs"] = 1
            if body["max_tokens"] is None:
                continue  # means what is usual to one, and no limit to the other
        whole = {k: v for k, v in body.items() if k != "stream_options"}
        theirs = await ask(client, plain.url, whole, path)
        ours = await ask(client, gateway.url, whole, path)
        assert ours.status == theirs.status == 200, (name, ours.text)
        assert neutral(ours.body) == neutral(theirs.body), name
        assert [*ours.body] == [*theirs.body], name
        streamed = body | {"stream": True}
        theirs = await ask(client, plain.url, streamed, path)
        ours = await ask(client, gateway.url, streamed, path)
        assert ours.headers["Content-Type"] == theirs.headers["Content-Type"]
        assert by_choice(ours.events) == by_choice(theirs.events), name


def by_choice(events: list[Any]) -> Any:
    """A stream with neighbouring tokens of a choice together."""
    heads = [neutral({**event, "choices": []}) for event in events]
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for one in event["choices"]:
            known = choices.setdefault(one["index"], {})
            for name, value in one.items():
                if name == "delta":
                    for kind, text in value.items():
                        known[kind] = known.get(kind, "") + text
                elif name == "text":
                    known[name] = known.get(name, "") + value
                elif name == "logprobs" and value and "content" in value:
                    known[name] = [*known.get(name, []), *value["content"]]
                elif name == "token_ids" and value:
                    known[name] = [*known.get(name, []), *value]
                elif name != "logprobs":
                    known[name] = value if value is not None else known.get(name)
    names = {name for head in heads for name in head}
    first = {**heads[0], "fingerprint": None}  # it is told at the end, maybe the same
    return first, heads[-1], choices, names


async def test_a_list_of_prompts(
    pair: tuple[SimWorker, Running], client: aiohttp.ClientSession
) -> None:
    """Each is a request of its own there; the client sees one answer."""
    plain, gateway = pair
    prompts = [f"Number {n} is" for n in range(20)]
    body = {"model": MODEL, "prompt": prompts, "n": 2, "max_tokens": 5}
    theirs = await ask(client, plain.url, body, COMPLETIONS)
    ours = await ask(client, gateway.url, body, COMPLETIONS)
    assert neutral(ours.body) == neutral(theirs.body)
    streamed = body | {"stream": True, "stream_options": {"include_usage": True}}
    theirs = await ask(client, plain.url, streamed, COMPLETIONS)
    ours = await ask(client, gateway.url, streamed, COMPLETIONS)
    assert by_choice(ours.events) == by_choice(theirs.events)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_alone_is_echoed(
    pair: tuple[SimWorker, Running], client: aiohttp.ClientSession, stream: bool
) -> None:
    """With `max_tokens` 0 one token is generated, and counted, and not shown."""
    _, gateway = pair
    body = {"model": MODEL, "prompt": "Once upon", "echo": True, "max_tokens": 0}
    told = await ask(client, gateway.url, body | {"stream": stream}, COMPLETIONS)
    texts = [choice["text"] for e in told.events for choice in e["choices"]]
    if not stream:
        texts = [choice["text"] for choice in told.body["choices"]]
        assert told.body["usage"]["completion_tokens"] == 1
    assert "".join(texts) == "Once upon"


async def test_ids_as_a_prompt(
    pair: tuple[SimWorker, Running], client: aiohttp.ClientSession
) -> None:
    """They are what is sent."""
    plain, gateway = pair
    body = {"model": MODEL, "prompt": [1000, 1001, 1002], "return_token_ids": True}
    theirs = await ask(client, plain.url, body, COMPLETIONS)
    ours = await ask(client, gateway.url, body, COMPLETIONS)
    assert neutral(ours.body) == neutral(theirs.body)
    assert ours.body["usage"]["completion_tokens"] == 16
