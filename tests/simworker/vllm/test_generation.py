"""Chat and completions: the shapes of a real vLLM, and what was generated."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker import captures
from tests.simworker.conftest import FAST

HELLO = [{"role": "user", "content": "hi"}]


async def post(
    client: aiohttp.ClientSession,
    worker: SimWorker,
    path: str,
    body: dict[str, Any],
    **headers: str,
) -> Any:
    """The JSON answer, or the events of a stream; it must be a 200."""
    async with client.post(worker.url + path, json=body, headers=headers) as response:
        text = await response.text()
        assert response.status == 200, text
        if body.get("stream"):
            kind = response.headers["Content-Type"]
            assert kind == "text/event-stream; charset=utf-8"
            return captures.sse_events(text)
        assert response.headers["Content-Type"].startswith("application/json")
        return json.loads(text)


async def chat(client: aiohttp.ClientSession, worker: SimWorker, **fields: Any) -> Any:
    """A chat call with one short message, unless `fields` say otherwise."""
    body = {"messages": HELLO, "max_tokens": 5} | fields
    return await post(client, worker, "/v1/chat/completions", body)


def comparable(answer: Any) -> Any:
    """Keys only, without what depends on a reasoning parser (we have none)."""
    found: Any = captures.keys(answer)
    found.get("usage", {}).pop("completion_tokens_details", None)
    return found


async def test_chat_has_the_captured_keys(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Every chat answer of the captures has our keys, in our order."""
    ours = await chat(client, worker, return_token_ids=True)
    compared = 0
    for case in captures.cases("w1_chat_cases").values():
        theirs = case.get("chat", {}).get("response", {})
        if "choices" not in theirs or theirs["usage"]["prompt_tokens_details"] is None:
            continue
        expected = comparable(theirs)
        if theirs["prompt_token_ids"] is None:
            expected["prompt_token_ids"] = [None]
            expected["choices"][0]["token_ids"] = [None]
        assert json.dumps(comparable(ours)) == json.dumps(expected)
        compared += 1
    assert compared >= 20


async def test_chat_stream_has_the_captured_keys(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Role, tokens, end and usage come in the captured order with the captured keys."""
    captured = captures.cases("w1_other_cases")["p04_chat_stream_ids"]
    theirs = captures.sse_events(captured["response"]["__text__"])
    body = captured["request"] | {"model": "qwen3-demo"}
    headers = {"X-Request-Id": "abc-1"}
    ours = await post(client, worker, "/v1/chat/completions", body, **headers)

    def shape(event: Any) -> str:
        shown = json.dumps(comparable(event)) if event != "[DONE]" else event
        return shown.replace("reasoning", "content")

    kinds = [shape(event) for event in theirs]
    assert [shape(event) for event in (ours[0], *ours[-3:])] == [kinds[0], *kinds[-3:]]
    assert {shape(event) for event in ours[1:-3]} <= {kinds[1]}
    assert {event["id"] for event in ours[:-1]} == {"chatcmpl-abc-1"}
    counts = [len(event["choices"][0]["token_ids"]) for event in ours[1:-2]]
    assert sum(counts) == 4


async def test_completions_has_the_captured_keys(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """A completions answer has the captured keys."""
    captured = captures.cases("w1_other_cases")["p01_ids"]
    body = captured["request"] | {"model": "qwen3-demo"}
    ours = await post(client, worker, "/v1/completions", body)
    expected = comparable(captured["response"])
    assert json.dumps(comparable(ours)) == json.dumps(expected)
    assert ours["usage"]["prompt_tokens"] == 73
    assert ours["choices"][0]["prompt_token_ids"] == body["prompt"]
    assert ours["id"].startswith("cmpl-")


async def test_cached_tokens(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """The second of two equal prompts finds all but the last block of the first."""
    messages = [{"role": "user", "content": "word " * 200}]
    first = await chat(client, worker, messages=messages)
    second = await chat(client, worker, messages=messages)
    tokens = first["usage"]["prompt_tokens"]
    stored = tokens // 16 * 16
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert first["usage"]["prompt_tokens_details"]["created_cache_tokens"] == stored
    hit = (tokens - 1) // 16 * 16
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == hit
    salted = await chat(client, worker, messages=messages, cache_salt="x")
    assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_stream_and_whole_say_the_same(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Equal requests give equal text and ids, streamed or not."""
    fields: dict[str, Any] = {"max_tokens": 40, "return_token_ids": True, "seed": 3}
    whole = await chat(client, worker, **fields)
    events = await chat(client, worker, **fields, stream=True)
    assert events[-1] == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    parts = [event["choices"][0] for event in events[1:-1]]
    text = "".join(part["delta"]["content"] for part in parts)
    assert text == whole["choices"][0]["message"]["content"]
    token_ids = [token for part in parts for token in part["token_ids"]]
    assert token_ids == whole["choices"][0]["token_ids"]
    assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert (
        parts[-1]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    )
    assert "usage" not in events[-2]


async def test_several_choices(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """With n=3 there are three different answers; the prompt is counted once."""
    whole = await chat(client, worker, n=3, max_tokens=8)
    texts = [choice["message"]["content"] for choice in whole["choices"]]
    assert len(set(texts)) == 3
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["completion_tokens"] == 24
    events = await chat(client, worker, n=3, max_tokens=8, stream=True)
    streamed = ["", "", ""]
    for event in events[:-1]:
        choice = event["choices"][0]
        streamed[choice["index"]] += choice["delta"]["content"]
    assert streamed == texts


async def test_completions_prompts(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """Text, ids and lists of either; choices are numbered through."""
    for prompt, tokens, count in (
        ("one two", 2, 1), ([1, 2, 3], 3, 1),
        (["a", "b c"], 3, 2), ([[1], [2, 3]], 3, 2),
    ):  # fmt: skip
        body = {"prompt": prompt, "max_tokens": 3, "n": 2}
        answer = await post(client, worker, "/v1/completions", body)
        assert answer["usage"]["prompt_tokens"] == tokens
        assert answer["usage"]["completion_tokens"] == 6 * count
        assert [each["index"] for each in answer["choices"]] == list(range(2 * count))
        details = answer["usage"]["prompt_tokens_details"]
        assert details["created_cache_tokens"] is None


async def test_completions_default_and_stream(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """16 tokens unless asked otherwise; the last event alone has `usage`."""
    whole = await post(client, worker, "/v1/completions", {"prompt": "x"})
    assert whole["usage"]["completion_tokens"] == 16
    body = {"prompt": "x", "stream": True, "stream_options": {"include_usage": True}}
    events = await post(client, worker, "/v1/completions", body)
    text = "".join(event["choices"][0]["text"] for event in events[:-2])
    assert text == whole["choices"][0]["text"]
    assert list(events[0]["choices"][0]) == [
        "index", "text", "logprobs", "finish_reason", "stop_reason",
        "prompt_token_ids", "token_ids",
    ]  # fmt: skip
    assert not any("usage" in event for event in events[:-2])
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 16


async def test_continuous_usage(
    client: aiohttp.ClientSession, worker: SimWorker
) -> None:
    """On request each event counts the tokens so far."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = await chat(client, worker, stream=True, stream_options=options)
    counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[-2:] == [5, 5]


async def test_forwarded_ids(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Ids in `kv_transfer_params` replace rendering; at the top level they do not."""
    ids = list(range(2000, 2050))
    forwarded = await chat(
        client, worker, messages=[], return_token_ids=True,
        kv_transfer_params={"prompt_token_ids": ids},
    )  # fmt: skip
    assert forwarded["prompt_token_ids"] == ids
    assert worker.api.totals.skipped_rendering == 1
    ignored = await chat(client, worker, return_token_ids=True, prompt_token_ids=ids)
    assert worker.api.totals.skipped_rendering == 1
    rendered = [151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198]
    assert ignored["prompt_token_ids"] == rendered


async def test_logprobs(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Each token has an entry; `top_logprobs` lists it once more."""
    whole = await chat(client, worker, logprobs=True, top_logprobs=1)
    choice = whole["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(each["token"] for each in content) == choice["message"]["content"]
    assert [len(each["top_logprobs"]) for each in content] == [1] * 5
    body = {"prompt": "x", "logprobs": 1, "max_tokens": 4}
    answer = await post(client, worker, "/v1/completions", body)
    found = answer["choices"][0]
    pieces = found["logprobs"]["tokens"]
    assert "".join(pieces) == found["text"]
    assert found["logprobs"]["text_offset"][1] == len(pieces[0])


async def test_details_can_be_hidden(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """As engines without the flag: nothing about cached tokens."""
    options = msgspec.structs.replace(FAST, prompt_tokens_details=False)
    worker = await start_worker(options)
    whole = await chat(client, worker)
    assert whole["usage"]["prompt_tokens_details"] is None
    options_ = {"include_usage": True}
    events = await chat(client, worker, stream=True, stream_options=options_)
    assert "prompt_tokens_details" not in events[-2]["usage"]


async def test_adapters(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """An adapter answers under its name and shares no blocks with its base."""
    worker = await start_worker(
        msgspec.structs.replace(FAST, lora_modules=("fr=/loras/fr",))
    )
    messages = [{"role": "user", "content": "word " * 50}]
    for model, cached in (("qwen3-demo", 0), ("fr", 0), ("fr", 48)):
        whole = await chat(client, worker, messages=messages, model=model)
        assert whole["model"] == model
        assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == cached
    async with client.get(f"{worker.url}/v1/models") as response:
        cards = (await response.json())["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [
        ("qwen3-demo", None), ("fr", "qwen3-demo")
    ]  # fmt: skip


async def test_answers_file(
    client: aiohttp.ClientSession, start_worker: StartWorker, tmp_path: Path
) -> None:
    """Output ids of the file come out, whatever is asked besides."""
    path = tmp_path / "answers.jsonl"
    path.write_text('{"match": "hi", "output_ids": [198, 43039, 43039]}\n')
    worker = await start_worker(msgspec.structs.replace(FAST, answers=str(path)))
    whole = await chat(client, worker, return_token_ids=True)
    assert whole["choices"][0]["token_ids"] == [198, 43039, 43039]
    assert whole["choices"][0]["message"]["content"] == "\n CHANGE CHANGE"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_limits(
    client: aiohttp.ClientSession, worker: SimWorker, field: str
) -> None:
    """Both names limit the output; neither lets the answer come to its end."""
    body = {"messages": HELLO, field: 7}
    whole = await post(client, worker, "/v1/chat/completions", body)
    assert whole["usage"]["completion_tokens"] == 7
    free = await post(client, worker, "/v1/chat/completions", {"messages": HELLO})
    assert free["choices"][0]["finish_reason"] == "stop"
    assert free["usage"]["completion_tokens"] > 30
