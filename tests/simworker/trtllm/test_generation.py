"""Chat and completions of a simulated TensorRT-LLM worker over real sockets."""

import base64
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from kvindex.blocks import pack_ids, unpack_ids
from render import Renderer
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.talk import CHAT, get, openai_client, post, streams_as_whole
from tests.simworker.trtllm.conftest import TRTLLM

COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}]
NAMED = {"type": "function", "function": {"name": "f"}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


async def chat(client: aiohttp.ClientSession, worker: SimWorker, **fields: Any) -> Any:
    """A chat of one short message, unless `fields` say otherwise; it is a 200."""
    body = {"model": "any", "messages": HELLO, "max_tokens": 5} | fields
    status, answer = await post(client, worker, CHAT, body)
    assert status == 200, answer
    return answer


async def test_chat(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """The keys of the real answer, and the model as the client named it."""
    answer = await chat(client, worker)
    assert list(answer) == [
        "id", "object", "created", "model", "choices", "usage", "prompt_token_ids",
        "prompt_token_ids_b64",
    ]  # fmt: skip
    assert (answer["object"], answer["model"]) == ("chat.completion", "any")
    assert answer["id"].startswith("chatcmpl-")
    assert len(answer["id"]) == len("chatcmpl-") + 32
    (choice,) = answer["choices"]
    assert list(choice) == [
        "index", "message", "logprobs", "finish_reason", "stop_reason",
        "mm_embedding_handle", "disaggregated_params", "avg_decoded_tokens_per_iter",
    ]  # fmt: skip
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"]
    assert choice["message"]["tool_calls"] == []
    assert answer["usage"] == {
        "prompt_tokens": 9, "total_tokens": 14, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }  # fmt: skip


async def test_rendered_as_the_engine_does(
    client: aiohttp.ClientSession, worker: SimWorker, renderer: Renderer
) -> None:
    """Prompts are those of the engine's profile, whoever else shares the model."""
    assert worker.renderer.profile == "trtllm"
    answer = await chat(client, worker, messages=PARTS)
    ours = renderer.with_profile("trtllm").render_chat({"messages": PARTS})
    assert answer["usage"]["prompt_tokens"] == len(ours)


async def test_stream(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """A role, tokens without what is null, one usage with cached tokens, the end."""
    whole = await chat(client, worker)
    events = await chat(
        client, worker, stream=True, stream_options={"include_usage": True}
    )
    *tokens, last, done = events
    assert done == "[DONE]"
    assert tokens[0]["choices"] == [{"index": 0, "delta": {"role": "assistant"}}]
    texts = [event["choices"][0]["delta"]["content"] for event in tokens[1:]]
    assert "".join(texts) == whole["choices"][0]["message"]["content"]
    assert tokens[-1]["choices"][0]["finish_reason"] == "length"
    assert all("usage" not in event for event in tokens)
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert len({event["id"] for event in events[:-1]}) == 1
    plain = await chat(client, worker, stream=True)
    assert all(event == "[DONE]" or event["choices"] for event in plain)


async def test_cached_tokens(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Whole blocks of 32 tokens, but for the last token; a salt keeps them apart."""
    messages = [{"role": "user", "content": "word " * 200}]
    cached, tokens = [], 0
    for salt in (None, None, "x"):
        answer = await chat(client, worker, messages=messages, cache_salt=salt)
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        tokens = answer["usage"]["prompt_tokens"]

    assert cached == [0, (tokens - 1) // 32 * 32, 0]


@pytest.mark.parametrize("encoded", [False, True])
async def test_forwarded_ids(
    client: aiohttp.ClientSession, worker: SimWorker, encoded: bool
) -> None:
    """Ids replace rendering, as a list or in base64, and the worker counts it."""
    ids = list(range(2000, 2050))
    field: dict[str, Any] = {"prompt_token_ids": ids}
    if encoded:
        field = {"prompt_token_ids_b64": base64.b64encode(pack_ids(ids)).decode()}
    rendered = await chat(client, worker)
    answer = await chat(client, worker, **field)
    assert answer["usage"]["prompt_tokens"] == 50
    assert rendered["usage"]["prompt_tokens"] == 9
    assert (await get(client, worker, "/sim/stats"))["skipped_rendering"] == 1


async def test_what_it_would_have_rendered(
    client: aiohttp.ClientSession, worker: SimWorker, renderer: Renderer
) -> None:
    """Forwarding the right ids changes nothing but who rendered."""
    ids = renderer.with_profile("trtllm").render_chat({"messages": HELLO}).token_ids
    own = await chat(client, worker, seed=1)
    forwarded = await chat(client, worker, seed=1, prompt_token_ids=unpack_ids(ids))
    for answer in (own, forwarded):
        del answer["id"], answer["created"]
    assert own == forwarded


@pytest.mark.parametrize("field", ["prompt_token_ids", "prompt_token_ids_b64"])
async def test_named_tool_and_ids(
    client: aiohttp.ClientSession, worker: SimWorker, field: str
) -> None:
    """A 400 with either form of ids, even one that is no base64; without ids a 200."""
    value: Any = [1, 2] if field == "prompt_token_ids" else "?"
    body = {"model": "m", "messages": HELLO, "tools": TOOLS, "tool_choice": NAMED}
    status, answer = await post(client, worker, CHAT, body | {field: value})
    assert status == 400
    assert list(answer) == ["object", "message", "type", "param", "code"]
    assert (answer["object"], answer["type"]) == ("error", "BadRequestError")
    assert "named function tool_choice is not supported" in answer["message"]
    assert (await post(client, worker, CHAT, body | {"max_tokens": 1}))[0] == 200
    assert (await get(client, worker, "/sim/stats"))["skipped_rendering"] == 0


@pytest.mark.parametrize(
    ("path", "fields", "word"),
    [
        (CHAT, {"kv_transfer_params": {}}, "body.kv_transfer_params"),
        (CHAT, {"input_ids": [1]}, "extra_forbidden"),
        (CHAT, {"continue_final_message": True}, "extra_forbidden"),
        (CHAT, {"messages": ...}, "body.messages"),
        (CHAT, {"model": ...}, "body.model"),
        (CHAT, {"prompt_token_ids": "x"}, "body.prompt_token_ids"),
        (CHAT, {"stream_options": {"include_usage": True}}, "stream is true"),
        (CHAT, {"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        (CHAT, {"tools": [{"type": "function", "function": {}}]}, "function.name"),
        (CHAT, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        (COMPLETIONS, {"cache_salt": "x"}, "body.cache_salt"),
        (COMPLETIONS, {"suffix": "x"}, "suffix is not supported"),
        (COMPLETIONS, {"prompt": ...}, "body.prompt"),
    ],
)
async def test_strict(
    client: aiohttp.ClientSession,
    worker: SimWorker,
    path: str,
    fields: dict[str, Any],
    word: str,
) -> None:
    """What the request models do not know, or know otherwise, is a 400."""
    body: dict[str, Any] = {"model": "m", "max_tokens": 1}
    body |= {"messages": HELLO} if path == CHAT else {"prompt": "x"}
    body = {name: v for name, v in (body | fields).items() if v is not ...}
    status, answer = await post(client, worker, path, body)
    assert (status, list(answer)) == (400, ["error"])
    assert word in answer["error"]
    assert worker.api.totals.refused == worker.api.totals.requests == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template": "x"},
        {"prompt_token_ids": []},
        {"prompt_token_ids": [-1]},
        {"prompt_token_ids": [1 << 31]},
        {"prompt_token_ids_b64": "AAA="},
        {"n": 0},
        {"n": 100_000},
        {"max_tokens": 0},
        {"messages": []},
    ],
)
async def test_refused(
    client: aiohttp.ClientSession, worker: SimWorker, fields: dict[str, Any]
) -> None:
    """What the engine refuses after its models took it is a flat 400."""
    body = {"model": "m", "messages": HELLO} | fields
    status, answer = await post(client, worker, CHAT, body)
    assert (status, answer["object"], answer["code"]) == (400, "error", 400)


async def test_length(client: aiohttp.ClientSession, start_worker: StartWorker) -> None:
    """A long prompt is refused by a named code; a long output is cut."""
    worker = await start_worker(msgspec.structs.replace(TRTLLM, max_model_len=64))
    long = {"model": "m", "prompt": list(range(100))}
    status, answer = await post(client, worker, COMPLETIONS, long)
    assert (status, answer["code"]) == (400, "context_length_exceeded")
    body = {"model": "m", "prompt": [1] * 60, "max_tokens": 50, "ignore_eos": True}
    status, answer = await post(client, worker, COMPLETIONS, body)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 4)


async def test_completions(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """Several prompts are numbered through; a stream tells each one's usage."""
    body = {"model": "m", "prompt": [[1, 2], [3, 4, 5]], "max_tokens": 3, "n": 2}
    status, answer = await post(client, worker, COMPLETIONS, body)
    assert status == 200
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 12
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    status, events = await post(client, worker, COMPLETIONS, body)
    usages = [event["usage"] for event in events[:-1] if event["usage"]]
    assert [used["prompt_tokens"] for used in usages] == [2, 3]
    body = {"model": "m", "prompt": "x", "max_tokens": 4, "detokenize": False}
    _, answer = await post(client, worker, COMPLETIONS, body)
    assert answer["choices"][0]["text"] == ""
    assert len(answer["choices"][0]["token_ids"]) == 4


async def test_openai_client(worker: SimWorker) -> None:
    """The official client reads answers, streams and refusals."""
    async with openai_client(worker) as api:
        await streams_as_whole(api)
        with pytest.raises(openai.BadRequestError):
            await api.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}],
                extra_body={"priority_class": 1},
            )  # fmt: skip
