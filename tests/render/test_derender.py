"""Derendering as a real vLLM 0.32 did it, but for the differences that are named."""

import json
from typing import Any

import pytest

from render import Renderer, RenderOptions, RenderRefused, RenderService
from render.derender import Parsers
from tests.render.captured import WORKER, Exchange, body_of, exchanges

CHAT, COMPLETIONS = "/v1/chat/completions/derender", "/v1/completions/derender"
DIFFERENT = {
    # Plain text without a chat request, as vLLM's page promises; vLLM: 400.
    "d01_no_chat_request",
    # Not streamed, vLLM 0.32 left "stop" where 0.33 says "tool_calls".
    "d08_tool_call",
}
HI = {"model": "tiny-qwen3", "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
NAMES = ("tiny-qwen3",)


@pytest.fixture(scope="module")
def renderer(vllm: Renderer) -> Renderer:
    """Qwen3's renderer."""
    return vllm


@pytest.fixture(scope="module")
def service(renderer: Renderer) -> RenderService:
    """The service of the captured worker."""
    options = RenderOptions(
        served_model_names=NAMES,
        max_model_len=4096,
        reasoning_parser="qwen3",
        tool_call_parser="hermes",
    )
    return RenderService(renderer, options)


@pytest.fixture(scope="module")
def plain(renderer: Renderer) -> RenderService:
    """A service without parsers."""
    return RenderService(
        renderer, RenderOptions(served_model_names=NAMES, max_model_len=4096)
    )


def ids_of(renderer: Renderer, text: str) -> list[int]:
    """The ids of a text."""
    body = {"prompt": text, "add_special_tokens": False}
    (rendered,) = renderer.render_completion(body)
    return memoryview(rendered.token_ids).cast("I").tolist()


def answer(service: RenderService, path: str, body: bytes) -> tuple[int, Any]:
    """Status and JSON."""
    call = service.derender_chat if path == CHAT else service.derender_completions
    try:
        return 200, json.loads(json.dumps(call(body)))
    except RenderRefused as refused:
        return refused.status, json.loads(json.dumps(refused.body()))


def comparable(value: Any) -> Any:
    """An answer without what is new each time; of an error, its fields."""
    if "error" in value:
        return {key: value["error"][key] for key in ("type", "param", "code")}
    value.get("chunk", value).pop("created")
    for choice in value.get("choices", ()):
        for call in choice.get("message", {}).get("tool_calls", ()):
            assert len(call.pop("id")) == 16
    return value


@pytest.mark.parametrize("exchange", [*exchanges(WORKER, CHAT, COMPLETIONS)])
def test_as_captured(
    service: RenderService, exchange: Exchange, request: pytest.FixtureRequest
) -> None:
    """Every field of every answer, and every error."""
    if "__note__" in exchange["request"]:
        pytest.skip("its body is not in the file: test_too_much has it")
    status, got = answer(service, exchange["path"], body_of(exchange))
    same = (status, comparable(got)) == (
        exchange["status"],
        comparable(exchange["response"]),
    )
    named = any(name in request.node.name for name in DIFFERENT)
    assert same is not named


def test_the_words_of_errors(service: RenderService) -> None:
    """Short ones are vLLM's to the letter."""
    (missing,) = (
        one.values[0] for one in exchanges(WORKER, CHAT) if "d13_missing" in str(one.id)
    )
    exchange: Any = missing
    _, got = answer(service, CHAT, body_of(exchange))
    assert got == exchange["response"]


def chat(
    service: RenderService, ids: Any, finish: str = "stop", **fields: Any
) -> tuple[int, Any]:
    """A chat of one choice, derendered."""
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
    request = fields.pop("chat_request", {})
    body = {
        "generate_response": {"request_id": "r", "choices": [choice]},
        "chat_request": {**HI, **request},
        **fields,
    }
    return answer(service, CHAT, json.dumps(body).encode())


@pytest.mark.parametrize("include", [False, True])
def test_stop_token(plain: RenderService, renderer: Renderer, include: bool) -> None:
    """The last id is left out if it ended the answer, and only then."""
    end = renderer.vocabulary.added_ids["<|im_end|>"]
    ids = [*ids_of(renderer, "yes"), end]
    asked = {"include_stop_str_in_output": include, "skip_special_tokens": False}
    _, got = chat(plain, ids, chat_request=asked)
    wanted = "yes<|im_end|>" if include else "yes"
    assert got["choices"][0]["message"]["content"] == wanted
    _, cut = chat(plain, ids, "length", chat_request=asked)
    assert cut["choices"][0]["message"]["content"] == "yes<|im_end|>"
    assert got["usage"]["completion_tokens"] == len(ids)


def test_stop_strings(plain: RenderService, renderer: Renderer) -> None:
    """The text is cut at the first, after `min_tokens`; the reason says which."""
    ids = ids_of(renderer, "one two three two")
    _, got = chat(plain, ids, "length", chat_request={"stop": ["tw", "three"]})
    (choice,) = got["choices"]
    assert choice["message"]["content"] == "one "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "tw")
    asked = {"stop": "two", "min_tokens": 3, "include_stop_str_in_output": True}
    _, later = chat(plain, ids, "length", chat_request=asked)
    assert later["choices"][0]["message"]["content"] == "one two three two"


@pytest.mark.parametrize(
    ("choice", "text", "content"),
    [
        ("required", '[{"name": "f", "parameters": {"x": 1}}]', ""),
        ({"type": "function", "function": {"name": "f"}}, '{"x": 1}', ""),
        ("required", "no call", "no call"),
        ("none", '<tool_call>{"name": "f", "arguments": {}}</tool_call>', None),
    ],
)
def test_tool_choice(
    service: RenderService, renderer: Renderer, choice: Any, text: str, content: Any
) -> None:
    """What had to be a call is JSON; what may be none is text."""
    asked = {
        "tools": TOOLS,
        "tool_choice": choice,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    _, got = chat(service, ids_of(renderer, text), chat_request=asked)
    message = got["choices"][0]["message"]
    assert message["content"] == (text if content is None else content)
    calls = message.get("tool_calls", [])
    assert len(calls) == (1 if content == "" else 0)
    for call in calls:
        assert call["function"] == {"name": "f", "arguments": '{"x": 1}'}


def test_reasoning_that_is_not_asked_for(
    service: RenderService, renderer: Renderer
) -> None:
    """It is left out, and the ids that would tell it, too."""
    ids = ids_of(renderer, "why</think>so")
    asked = {"include_reasoning": False, "return_token_ids": True}
    _, got = chat(service, ids, chat_request=asked)
    (choice,) = got["choices"]
    assert choice["message"]["reasoning"] is None
    assert choice["message"]["content"] == "so"
    assert choice["token_ids"] is None


def test_logprobs(plain: RenderService, renderer: Renderer) -> None:
    """Tokens as texts; a character of several tokens is the last one's."""
    ids = ids_of(renderer, "a𓀀")
    content = [
        {"token_id": one, "logprob": -1.0, "top_logprobs": [
            {"token_id": one, "logprob": -1.0}]}
        for one in ids
    ]  # fmt: skip
    choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}}
    body = {"generate_response": {"choices": [choice]}}
    _, got = answer(plain, CHAT, json.dumps(body).encode())
    entries = got["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in entries] == ["a", *[""] * (len(ids) - 2), "𓀀"]
    assert entries[-1]["bytes"] == list("𓀀".encode())
    assert entries[0]["top_logprobs"][0] == {
        "token": "a",
        "logprob": -1.0,
        "bytes": [97],
    }
    bodies = {"generate_responses": [{"choices": [choice]}]}
    _, got = answer(plain, COMPLETIONS, json.dumps(bodies).encode())
    logprobs = got["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", *[""] * (len(ids) - 2), "𓀀"]
    assert logprobs["text_offset"] == [0, *[1] * (len(ids) - 1)]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"token_ids": []}, "choice 0 has empty or null token_ids"),
        ({}, "choice 0 has empty or null token_ids"),
        ({"token_ids": [5, 151_936]}, "generate_response.choices.0.token_ids.1"),
        ({"token_ids": [-1]}, "token_ids.0"),
        ({"token_ids": ["5"]}, "token_ids.0"),
        ({"token_ids": [True]}, "token_ids.0"),
        ({"token_ids": [2**40]}, "token_ids.0"),
        ({"token_ids": [1.5]}, "token_ids.0"),
        ({"token_ids": "5"}, "token_ids"),
        ({"token_ids": [1], "stop_reason": []}, "stop_reason"),
        ({"token_ids": [1], "finish_reason": 5}, "finish_reason"),
        ({"token_ids": [1], "logprobs": {"content": [{}]}}, "logprobs.content.0"),
        ({"token_ids": [1] * 4097}, "token_ids length (4097) in choice 0"),
        (
            {"token_ids": [1], "logprobs": {"content": [
                {"token_id": 1, "logprob": 0, "top_logprobs": [
                    {"token_id": 1, "logprob": 0}] * 21}]}},
            "top_logprobs count (21) in choice 0 exceeds max_logprobs (20).",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(
    service: RenderService, choice: dict[str, Any], words: str
) -> None:
    """400, and where."""
    body = {"generate_response": {"choices": [{"index": 0, **choice}]}}
    status, got = answer(service, CHAT, json.dumps(body).encode())
    assert status == 400
    assert words in got["error"]["message"]


def test_too_much(service: RenderService) -> None:
    """Choices, answers, prompts: 400 before anything is decoded."""
    one = {"choices": [{"index": 0, "token_ids": [1]}]}
    many = {"generate_responses": [one] * 20_000}
    status, got = answer(service, COMPLETIONS, json.dumps(many).encode())
    assert (status, got["error"]["message"]) == (
        400,
        "generate_responses count (20000) exceeds server maximum (16384). Set "
        "VLLM_MAX_N_SEQUENCES to increase this limit.",
    )
    for body, words in (
        ({"choices": one["choices"] * 20_000}, "choices count (20000)"),
        ({**one, "prompt_logprobs": [None] * 5000}, "prompt_logprobs length (5000)"),
        ({**one, "prompt_token_ids": [1] * 5000}, "prompt_token_ids length (5000)"),
        ({**one, "output_mode": "text"}, "Input should be 'tokens'"),
    ):
        sent = json.dumps({"generate_response": body}).encode()
        status, got = answer(service, CHAT, sent)
        assert status == 400
        assert words in got["error"]["message"]


def test_unknown_model(service: RenderService) -> None:
    """404, as everywhere."""
    body = {"model": "x", "generate_response": {"choices": []}}
    assert answer(service, CHAT, json.dumps(body).encode())[0] == 404


def test_as_a_library(renderer: Renderer) -> None:
    """A renderer derenders by itself."""
    ids = ids_of(renderer, 'why</think><tool_call>{"name":"f","arguments":{}}')
    close = renderer.vocabulary.added_ids["</tool_call>"]
    message = renderer.derender_chat(
        [*ids, close],
        chat_request={"tools": TOOLS},
        parsers=Parsers("qwen3", "hermes"),
    )
    assert message.text("reasoning") == "why"
    assert [call.name for call in message.calls] == ["f"]
    assert message.finish_reason == "tool_calls"
    assert renderer.derender_completion(ids_of(renderer, "two")) == "two"
