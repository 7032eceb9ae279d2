"""`/inference/v1/generate`: the shapes of a real vLLM, media, and being aborted."""

import asyncio
import json
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.hashing import Identity, Medium, canonical_cbor
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker import captures
from tests.simworker.conftest import FAST

PATH = "/inference/v1/generate"
IDS = [151644, 872, 198, *range(1000, 1070)]


def body(**fields: Any) -> dict[str, Any]:
    """A generate body of four tokens."""
    sampling = {"temperature": 0, "max_tokens": 4}
    return {"token_ids": IDS, "sampling_params": sampling} | fields


async def ask(
    client: aiohttp.ClientSession, worker: SimWorker, asked: Any, **headers: str
) -> tuple[int, Any]:
    """Status, and the JSON or the events of an answer."""
    async with client.post(worker.url + PATH, json=asked, headers=headers) as response:
        text = await response.text()
        if response.content_type == "text/event-stream":
            return response.status, captures.sse_events(text)
        return response.status, json.loads(text)


async def test_answers_have_the_captured_keys(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """A whole answer and each event of a stream, key for key and in order."""
    cases = captures.cases("w1_other_cases")
    theirs = cases["g15_salt"]["response"]
    _, ours = await ask(client, worker, body())
    assert json.dumps(captures.keys(ours)) == json.dumps(captures.keys(theirs))
    streamed = cases["g05_stream"]
    _, ours = await ask(client, worker, streamed["request"])
    theirs = captures.sse_events(streamed["response"]["__text__"])
    assert ours[-1] == theirs[-1] == "[DONE]"
    for number in (0, -3, -2):
        mine, real = captures.keys(ours[number]), captures.keys(theirs[number])
        assert json.dumps(mine) == json.dumps(real)


@pytest.mark.parametrize("name", ["g08_no_sampling", "g11_neg", "g12_oov"])
async def test_refusals_are_the_captured_ones(
    client: aiohttp.ClientSession, worker: SimWorker, name: str
) -> None:
    """Status, type and parameter, and what is said of the first fault."""
    case = captures.cases("w1_other_cases")[name]
    status, ours = await ask(client, worker, case["request"])
    theirs = case["response"]["error"]
    assert status == case["status"]
    assert {**ours["error"], "message": ""} == {**theirs, "message": ""}
    assert ours["error"]["message"][:60] == theirs["message"][:60]


async def test_the_id_is_the_clients(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """The header's before the body's."""
    _, answer = await ask(client, worker, body(request_id="b"))
    assert answer["request_id"] == "generate-tokens-b"
    headers = {"X-Request-Id": "h"}
    _, answer = await ask(client, worker, body(request_id="b"), **headers)
    assert answer["request_id"] == "generate-tokens-h"


async def test_several_choices_and_logprobs(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Each choice has its ids, and a log probability for each."""
    sampling = {"n": 2, "max_tokens": 3, "logprobs": 1}
    _, answer = await ask(client, worker, body(sampling_params=sampling))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    for choice in answer["choices"]:
        content = choice["logprobs"]["content"]
        assert [one["token_id"] for one in content] == choice["token_ids"]
        assert len(choice["token_ids"]) == 3


async def test_tokens_only(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """There are no chat routes then, and no stop strings."""
    worker = await start_worker(msgspec.structs.replace(FAST, api="tokens"))
    async with client.get(worker.url + "/v1/chat/completions") as response:
        assert response.status == 404
    async with client.get(worker.url + PATH) as response:
        assert response.status == 405
    sampling = {"max_tokens": 3, "stop": ["x"]}
    status, answer = await ask(client, worker, body(sampling_params=sampling))
    assert status == 400
    assert "--tokens-only" in answer["error"]["message"]


async def test_an_aborted_stream_ends(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """What is left of it is a choice that was aborted; its place is free again."""
    worker = await start_worker(msgspec.structs.replace(FAST, speed=1.0))
    sampling = {"max_tokens": 500, "ignore_eos": True}
    headers = {"X-Request-Id": "long"}
    asked = body(sampling_params=sampling, stream=True)
    running = asyncio.create_task(ask(client, worker, asked, **headers))
    await asyncio.sleep(0.2)
    names = {"request_ids": ["generate-tokens-long", "nobody"]}
    async with client.post(
        worker.url + "/inference/v1/abort_requests", json=names
    ) as response:
        assert (response.status, await response.text()) == (200, "")
    _, events = await asyncio.wait_for(running, 5)
    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "abort"
    assert worker.ranks[0].runner.aborted == 1


def test_media_enter_the_keys_of_the_blocks_they_reach_into() -> None:
    """By their offset from the block's first token, which may be negative."""
    identity = Identity(salt="s", media=(Medium("a", 3, 4), Medium("b", 12, 4)))
    assert identity.hashed_keys(0, 4) == (("mm", "a", 3), ("cache_salt", "s"))
    assert identity.hashed_keys(1, 4) == (("mm", "a", -1),)
    assert identity.event_keys(0, 4) == (("a", 3), "s")
    assert identity.event_keys(2, 4) is None
    assert identity.event_keys(3, 4) == (("b", 0),)
    assert canonical_cbor(-1) == b"\x20"
    assert canonical_cbor(-500) == b"\x39\x01\xf3"


async def test_media_keep_equal_tokens_apart(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """The same placeholders for another image are not found in the cache."""

    async def cached(hash_: str) -> int:
        place = {"offset": 2, "length": 30}
        features = {
            "mm_hashes": {"image": [hash_]},
            "mm_placeholders": {"image": [place]},
        }
        _, answer = await ask(client, worker, body(features=features))
        details = answer["usage"]["prompt_tokens_details"]
        return int(details["cached_tokens"])

    assert await cached("one") == 0
    assert await cached("two") == 0
    assert await cached("one") == 64
