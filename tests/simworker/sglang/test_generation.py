"""Chat and completions of a simulated SGLang worker over real sockets."""

from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from kvindex.blocks import unpack_ids
from render import Renderer
from simworker.server import SimWorker
from tests.running import StartWorker
from tests.simworker.sglang.conftest import SGLANG
from tests.simworker.talk import CHAT, get, openai_client, post, streams_as_whole

COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hi"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}]
HELLO_IDS = [151644, 872, 198, 6023, 151645, 198, 151644, 77091, 198]
LONG = [{"role": "user", "content": "word " * 200}]
NAMED = {"type": "function", "function": {"name": "f"}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


async def chat(client: aiohttp.ClientSession, worker: SimWorker, **fields: Any) -> Any:
    """A chat of one short message, unless `fields` say otherwise; it is a 200."""
    body = {"messages": HELLO, "max_tokens": 5} | fields
    status, answer = await post(client, worker, CHAT, body)
    assert status == 200, answer
    return answer


async def test_chat(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """The keys of the real answer; the model as it was asked for, or the default."""
    answer = await chat(client, worker)
    assert list(answer) == [
        "id", "object", "created", "model", "choices", "usage", "metadata",
    ]  # fmt: skip
    assert (answer["object"], answer["model"]) == ("chat.completion", "default")
    (choice,) = answer["choices"]
    assert list(choice) == [
        "index", "message", "logprobs", "finish_reason", "matched_stop",
    ]  # fmt: skip
    assert (choice["finish_reason"], choice["matched_stop"]) == ("length", None)
    assert answer["usage"] == {
        "prompt_tokens": 9, "total_tokens": 14, "completion_tokens": 5,
        "prompt_tokens_details": None, "reasoning_tokens": 0,
    }  # fmt: skip
    named = await chat(client, worker, model="any", rid="my-own")
    assert (named["model"], named["id"]) == ("any", "my-own")


async def test_rendered_as_the_engine_does(
    client: aiohttp.ClientSession, worker: SimWorker, renderer: Renderer
) -> None:
    """Prompts are those of the engine's profile: parts are joined with a space."""
    answer = await chat(client, worker, messages=PARTS, return_prompt_token_ids=True)
    ours = renderer.with_profile("sglang").render_chat({"messages": PARTS})
    ids = answer["choices"][0]["prompt_token_ids"]
    assert ids == unpack_ids(ours.token_ids)
    assert ids != unpack_ids(renderer.render_chat({"messages": PARTS}).token_ids)


async def test_stops(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """The end of text is told by its id, a string by itself, which is cut off."""
    whole = await chat(client, worker, max_tokens=2000)
    choice = whole["choices"][0]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", 151645)
    word = choice["message"]["content"].split()[3]
    for keep in (False, True):
        found = await chat(
            client, worker, max_tokens=2000, stop=[word], no_stop_trim=keep
        )
        (stopped,) = found["choices"]
        assert stopped["matched_stop"] == word
        assert stopped["message"]["content"].endswith(word) is keep


async def test_stream(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """A role, tokens, then why it ended, then usage."""
    whole = await chat(client, worker)
    events = await chat(
        client, worker, stream=True, stream_options={"include_usage": True}
    )
    first, *tokens, finish, last, done = events
    assert done == "[DONE]"
    assert first["choices"][0]["delta"] == {
        "reasoning_content": None, "role": "assistant", "content": "",
    }  # fmt: skip
    texts = [event["choices"][0]["delta"]["content"] for event in tokens]
    assert "".join(texts) == whole["choices"][0]["message"]["content"]
    assert all(event["choices"][0]["finish_reason"] is None for event in tokens)
    assert finish["choices"][0]["finish_reason"] == "length"
    assert finish["choices"][0]["delta"] == {"reasoning_content": None}
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert all("usage" not in event for event in events[:-2])


async def test_cached_tokens(
    client: aiohttp.ClientSession, worker: SimWorker, start_worker: StartWorker
) -> None:
    """Whole pages of 64, in usage and in `sglext`; a salt or key keeps them apart."""
    first = await chat(client, worker, messages=LONG)
    tokens = first["usage"]["prompt_tokens"]
    hit = (tokens - 1) // 64 * 64
    details = {"cached_tokens_details": {"device": hit, "host": 0}}
    asked: dict[str, Any] = {"messages": LONG, "return_cached_tokens_details": True}
    second = await chat(client, worker, **asked)
    assert first["usage"]["prompt_tokens_details"] is None
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": hit}
    assert second["sglext"] == details
    events = await chat(
        client, worker, stream=True, stream_options={"include_usage": True}, **asked
    )
    assert events[-3]["sglext"] == details
    assert events[-2]["usage"]["prompt_tokens_details"] == {"cached_tokens": hit}
    for apart in ({"cache_salt": "x"}, {"extra_key": "y"}):
        other = await chat(client, worker, messages=LONG, **apart)
        assert other["usage"]["prompt_tokens_details"] is None
    silent = await start_worker(
        msgspec.structs.replace(SGLANG, prompt_tokens_details=False)
    )
    for _ in range(2):
        answer = await chat(client, silent, messages=LONG)
        assert answer["usage"]["prompt_tokens_details"] is None


async def test_adapters(
    client: aiohttp.ClientSession, start_worker: StartWorker
) -> None:
    """Listed, named by the model or by a path; refused where it is not loaded."""
    worker = await start_worker(
        msgspec.structs.replace(SGLANG, lora_modules=("fr=/loras/fr",))
    )
    base, adapter = (await get(client, worker, "/v1/models"))["data"]
    told = (adapter["id"], adapter["root"], adapter["parent"], adapter["max_model_len"])
    assert told == ("fr", "/loras/fr", base["id"], None)
    assert (await get(client, worker, "/v1/models/fr")) == adapter
    cached = []
    for fields in (
        {},
        {"lora_path": "fr"},
        {"model": f"{base['id']}:fr"},
        {"model": "fr"},  # a name like any other
        {"lora_path": "fr", "extra_key": "x"},
    ):
        answer = await chat(client, worker, messages=LONG, **fields)
        cached.append(answer["usage"]["prompt_tokens_details"] is not None)
    assert cached == [False, False, True, True, False]
    for fields in ({"lora_path": "de"}, {"model": "x:de"}):
        body = {"messages": LONG} | fields
        status, error = await post(client, worker, CHAT, body)
        assert (status, error["message"]) == (
            400,
            "Got LoRA adapter that has never been loaded: de",
        )


async def test_forwarded_ids(
    client: aiohttp.ClientSession, worker: SimWorker, renderer: Renderer
) -> None:
    """`input_ids` replace rendering, and are counted; other engines' names do not."""
    ids = list(range(2000, 2050))
    answer = await chat(client, worker, input_ids=ids, return_token_ids=True)
    (choice,) = answer["choices"]
    assert choice["prompt_token_ids"] == ids
    assert len(choice["token_ids"]) == 5
    for foreign in (
        {"prompt_token_ids": ids},
        {"kv_transfer_params": {"prompt_token_ids": ids}},
        {"input_ids": None},
    ):
        answer = await chat(client, worker, return_token_ids=True, **foreign)
        assert answer["choices"][0]["prompt_token_ids"] == HELLO_IDS
    tools = {"tools": TOOLS, "tool_choice": NAMED}
    await chat(client, worker, input_ids=ids, **tools)
    assert (await get(client, worker, "/sim/stats"))["skipped_rendering"] == 2
    own = await chat(client, worker, seed=1)
    forwarded = await chat(client, worker, seed=1, input_ids=HELLO_IDS)
    assert own["choices"] == forwarded["choices"]


@pytest.mark.parametrize(
    ("fields", "kind", "word"),
    [
        ({"messages": ...}, "Bad Request", "body.messages"),
        ({"messages": "x"}, "Bad Request", "body.messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "Bad Request", "role"),
        ({"input_ids": "x"}, "Bad Request", "body.input_ids"),
        ({"input_ids": []}, "BadRequestError", "no tokens"),
        ({"input_ids": [-1]}, "BadRequestError", "negative"),
        ({"input_ids": [1 << 30]}, "BadRequestError", "greater than the vocab size"),
        ({"messages": []}, "BadRequestError", "Messages cannot be empty."),
        ({"tool_choice": "required"}, "BadRequestError", "Tools cannot be empty"),
        ({"tool_choice": NAMED}, "BadRequestError", "to a specific tool"),
        (
            {"tool_choice": {"function": {"name": "g"}}, "tools": TOOLS},
            "BadRequestError",
            "Tool 'g' not found",
        ),
        ({"stream": True, "return_prompt_token_ids": True}, "BadRequestError",
         "not supported with streaming"),
        ({"model": "base:adapter"}, "BadRequestError", "LoRA is not enabled"),
        ({"max_tokens": 50_000}, "BadRequestError", "a total of 50009 tokens"),
        ({"n": 0}, "BadRequestError", "n must be"),
        ({"routed_dp_rank": 3}, "BadRequestError", "routed_dp_rank=3"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "BadRequestError", ""),
    ],
)  # fmt: skip
async def test_refused(
    client: aiohttp.ClientSession,
    worker: SimWorker,
    fields: dict[str, Any],
    kind: str,
    word: str,
) -> None:
    """A flat 400 that says what was wrong."""
    given = {"messages": HELLO} | fields
    body = {name: v for name, v in given.items() if v is not ...}
    status, answer = await post(client, worker, CHAT, body)
    assert list(answer) == ["object", "message", "type", "param", "code"]
    assert (status, answer["object"], answer["code"]) == (400, "error", 400)
    assert answer["type"] == kind
    assert word in answer["message"]
    assert worker.api.totals.refused == worker.api.totals.requests == 1


@pytest.mark.parametrize(
    ("rank", "status"), [("0", 200), ("1", 400), ("x", 400), ("-1", 400)]
)
async def test_rank(
    client: aiohttp.ClientSession, worker: SimWorker, rank: str, status: int
) -> None:
    """The header beats the body; what is no rank of this worker is refused."""
    body = {"messages": HELLO, "max_tokens": 1, "routed_dp_rank": 7}
    headers = {"X-Data-Parallel-Rank": rank}
    assert (await post(client, worker, CHAT, body, **headers))[0] == status


async def test_completions(client: aiohttp.ClientSession, worker: SimWorker) -> None:
    """16 tokens; texts and ids; whole answers and streams say the same."""
    status, answer = await post(client, worker, COMPLETIONS, {"prompt": "one two"})
    assert status == 200
    assert (answer["object"], answer["usage"]["completion_tokens"]) == (
        "text_completion", 16,
    )  # fmt: skip
    body: dict[str, Any] = {"prompt": "one two", "stream": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    _, events = await post(
        client, worker, COMPLETIONS, body | {"stream_options": options}
    )
    texts = [event["choices"][0]["text"] for event in events[:-2]]
    assert "".join(texts) == answer["choices"][0]["text"]
    counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == 16
    body = {"prompt": [[1, 2], [3, 4, 5]], "max_tokens": 3, "n": 2}
    _, answer = await post(client, worker, COMPLETIONS, body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 5
    for wrong in ("", [], [0], 5, {"a": 1}, [1, "x"]):
        status, _ = await post(client, worker, COMPLETIONS, {"prompt": wrong})
        assert status == 400
    status, _ = await post(
        client, worker, COMPLETIONS, {"prompt": "x", "max_tokens": 0}
    )
    assert status == 400


async def test_openai_client(worker: SimWorker) -> None:
    """The official client reads answers, streams and refusals."""
    async with openai_client(worker) as api:
        await streams_as_whole(api)
        with pytest.raises(openai.BadRequestError):
            await api.chat.completions.create(model="m", messages=[])
