"""Render endpoints: what the captures do not show."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kvindex.blocks import unpack_ids
from render import Renderer, RenderOptions, RenderRefused, RenderService
from render.schema import TRTLLM_KEYS, VLLM_KEYS

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.fixture(scope="module")
def renderer(qwen3: Path) -> Renderer:
    """Qwen3's renderer as vLLM."""
    return Renderer.load(qwen3)


@pytest.fixture(scope="module")
def trtllm(qwen3: Path) -> Renderer:
    """Qwen3's renderer as TensorRT-LLM."""
    return Renderer.load(qwen3, profile="trtllm")


@pytest.fixture(scope="module")
def sglang(qwen3: Path) -> Renderer:
    """Qwen3's renderer as SGLang."""
    return Renderer.load(qwen3, profile="sglang")


def service(renderer: Renderer, **options: Any) -> RenderService:
    """A service of 4096 tokens with fixed ids."""
    given: dict[str, Any] = {"served_model_names": ("m", "alias"), **options}
    options_ = RenderOptions(**{"max_model_len": 4096, **given})
    return RenderService(renderer, options_, clock=lambda: 7.5, new_id=lambda: "0123")


def body(**fields: Any) -> bytes:
    """A chat body, by default of one message."""
    return json.dumps({"messages": [USER], **fields}).encode()


def refusal(service: RenderService, route: str = "chat", **fields: Any) -> Any:
    """How a body is refused: status and the fields of the error."""
    defaults = {"messages": [USER]} if route in ("chat", "tokenize") else {}
    with pytest.raises(RenderRefused) as caught:
        getattr(service, route)(json.dumps({**defaults, **fields}).encode())
    return caught.value


def test_dialects_narrow_the_keys(renderer: Renderer) -> None:
    """The union has all keys of both; a dialect only its own, with equal values."""
    union = service(renderer).chat(body())
    assert set(union) == {*TRTLLM_KEYS, *VLLM_KEYS}
    assert union["schema_version"] == 1
    assert union["kind"] == "chat"
    for dialect, keys in (("trtllm", TRTLLM_KEYS), ("vllm", VLLM_KEYS)):
        narrow = service(renderer, dialect=dialect).chat(body())
        assert narrow == {key: union[key] for key in keys}


def test_the_request_is_the_clients(renderer: Renderer) -> None:
    """Unknown fields, nulls and numbers come back as they were sent."""
    sent = {
        "messages": [USER],
        "alien": {"b": [1.0, None]},
        "temperature": 1,
        "n": None,
    }
    answer = service(renderer).chat(json.dumps(sent).encode())
    assert json.dumps(answer["request"]) == json.dumps(sent)
    items = service(renderer).completions(b'{"prompt": ["a", "b"], "seed": 3}')
    assert [item["request"] for item in items] == [
        {"prompt": "a", "seed": 3},
        {"prompt": "b", "seed": 3},
    ]
    (item,) = service(renderer).completions(b'{"prompt": [5, 6]}')
    assert item["request"] == {"prompt": [5, 6]}


def test_request_ids(renderer: Renderer, trtllm: Renderer) -> None:
    """The header's, else the body's, else a new one; completions by profile."""
    vllm = service(renderer)
    assert vllm.chat(body())["request_id"] == "chatcmpl-0123"
    assert vllm.chat(body(request_id="b"))["request_id"] == "chatcmpl-b"
    answer = vllm.chat(body(request_id="b"), request_id="h")
    assert answer["request_id"] == "chatcmpl-h"
    one, two = b'{"prompt": "a"}', b'{"prompt": ["a", "b"]}'
    assert [c["request_id"] for c in vllm.completions(one)] == ["cmpl-0123"]
    assert [c["request_id"] for c in vllm.completions(two, request_id="h")] == [
        "cmpl-h-0",
        "cmpl-h-1",
    ]
    assert [c["request_id"] for c in service(trtllm).completions(one)] == [
        "cmpl-0123-0"
    ]
    fresh = RenderService(trtllm, RenderOptions(served_model_names=("m",)))
    assert len(fresh.chat(body())["request_id"]) == len("chatcmpl-") + 32
    fresh = RenderService(renderer, RenderOptions(served_model_names=("m",)))
    assert len(fresh.chat(body())["request_id"]) == len("chatcmpl-") + 16
    assert vllm.responses(b'{"input": "x"}')["request_id"] == "resp_0123"


def test_models_a_request_may_name(renderer: Renderer) -> None:
    """Any served name, or none; the answer copies it."""
    vllm = service(renderer)
    assert vllm.chat(body(model="alias"))["model"] == "alias"
    assert vllm.chat(body())["model"] is None
    for route in ("chat", "tokenize"):
        refused = refusal(vllm, route, model="x")
        assert (refused.status, refused.param) == (404, "model")


def test_reasoning(renderer: Renderer, trtllm: Renderer) -> None:
    """What the prompt does not say is false for vLLM, null for TensorRT-LLM."""
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    history = [USER, {"role": "assistant", "content": "<think>a</think>b"}, USER]
    for engine, unsaid in ((renderer, False), (trtllm, None)):
        parsed = service(engine, reasoning_parser="qwen3")
        assert parsed.chat(body())["reasoning_ended"] is unsaid
        assert parsed.chat(body(messages=history))["reasoning_ended"] is unsaid
        assert parsed.chat(body(**off))["reasoning_ended"] is True
        assert parsed.chat(body(include_reasoning=False))["reasoning_ended"] is True
        assert service(engine).chat(body(**off))["reasoning_ended"] is None
    kwargs = service(trtllm, reasoning_parser="qwen3").chat(body(**off))
    wanted = {"chat_template_kwargs": {"enable_thinking": False}}
    assert kwargs["reasoning_parser_kwargs"] == wanted


def test_an_open_reasoning(renderer: Renderer) -> None:
    """A prompt that opens the reasoning leaves the model in it."""
    messages = [USER, {"role": "assistant", "content": "<think>\nhm"}]
    open_ = body(
        messages=messages, continue_final_message=True, add_generation_prompt=False
    )
    parsed = service(renderer, reasoning_parser="qwen3")
    assert parsed.chat(open_)["reasoning_ended"] is False


def test_tools_without_a_parser(
    renderer: Renderer, trtllm: Renderer, sglang: Renderer
) -> None:
    """vLLM's profile refuses them, the others render; with a parser all do."""
    named = {"type": "function", "function": {"name": "f"}}
    for choice in ("auto", "required", named):
        refused = refusal(service(renderer), tools=[TOOL], tool_choice=choice)
        assert (refused.status, refused.type) == (400, "BadRequestError")
        for engine in (trtllm, sglang):
            answer = service(engine).chat(body(tools=[TOOL], tool_choice=choice))
            assert len(answer["token_ids"]) > 100
        parsed = service(renderer, tool_call_parser="x")
        answer = parsed.chat(body(tools=[TOOL], tool_choice=choice))
        assert len(answer["token_ids"]) > 100
    # Routing renders what the endpoint refuses.
    assert len(renderer.render_chat(body(tools=[TOOL]))) > 100


def test_request_templates(renderer: Renderer) -> None:
    """Used if trusted; never opened as a file; a broken one is refused."""
    source = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    refused = refusal(service(renderer), chat_template=source)
    assert "--trust-request-chat-template" in refused.message
    trusting = service(renderer, trust_request_chat_template=True)
    answer = trusting.chat(body(chat_template=source), prompt_text=True)
    assert answer["prompt_text"] == "[hi]"
    answer = trusting.chat(body(chat_template="/etc/passwd"), prompt_text=True)
    assert answer["prompt_text"] == "/etc/passwd"
    assert refusal(trusting, chat_template="{% for %}").status == 400
    refused = refusal(trusting, chat_template_kwargs={"chat_template": source})
    assert refused.status == 400


def test_media_is_named(renderer: Renderer) -> None:
    """The part is named; nothing of it is shown."""
    part = {"type": "image_url", "image_url": {"url": "data:secret"}}
    content = [{"type": "text", "text": "see"}, part]
    refused = refusal(service(renderer), messages=[{**USER, "content": content}])
    assert refused.message == (
        "m is not a multimodal model (messages.0.content.1 is image_url)"
    )


def test_characters_before_tokens(renderer: Renderer) -> None:
    """A text that is too long by its characters alone is refused without tokenizing."""
    content = "a" * 30_000_000
    sent = body(messages=[{**USER, "content": content}])
    vllm = service(renderer)
    start = time.perf_counter()
    with pytest.raises(RenderRefused) as caught:
        vllm.chat(sent)
    assert time.perf_counter() - start < 2
    assert (caught.value.status, caught.value.param) == (400, "input_text")
    assert "more than 524288 characters" in caught.value.message


def test_output_must_fit_too(renderer: Renderer) -> None:
    """Prompt and answer together; the field that asks for it is named."""
    ids = len(service(renderer).chat(body())["token_ids"])
    room = 4096 - ids
    answer = service(renderer).chat(body(max_tokens=room))
    assert answer["sampling_params"]["max_tokens"] == room
    assert refusal(service(renderer), max_tokens=room + 1).param == "input_tokens"
    refused = refusal(service(renderer), max_completion_tokens=4097)
    assert refused.param == "max_completion_tokens"
    assert refusal(service(renderer), max_tokens=0).param == "max_tokens"
    assert service(renderer).chat(body())["sampling_params"]["max_tokens"] == room


def test_truncation(renderer: Renderer, trtllm: Renderer) -> None:
    """The last tokens stay, of TensorRT-LLM's the first; the side may be said."""
    every = service(renderer).chat(body())["token_ids"]
    cut = body(truncate_prompt_tokens=3)
    assert service(renderer).chat(cut)["token_ids"] == every[-3:]
    assert service(trtllm).chat(cut)["token_ids"] == every[:3]
    right = body(truncate_prompt_tokens=3, truncation_side="right")
    assert service(renderer).chat(right)["token_ids"] == every[:3]
    fits = service(renderer, max_model_len=8)
    kept = fits.chat(body(truncate_prompt_tokens=-1, max_tokens=2))["token_ids"]
    assert kept == every[-6:]
    refused = refusal(fits, truncate_prompt_tokens=7, max_tokens=2)
    assert refused.param == "truncate_prompt_tokens"
    assert refusal(service(renderer), truncate_prompt_tokens=0).status == 400
    assert refusal(service(renderer), truncation_side="up").param == (
        "body.truncation_side"
    )


def test_offsets_of_a_truncated_prompt(renderer: Renderer) -> None:
    """They are those of the ids that are left; ids that are given have none."""
    fields = {"return_token_offsets": True}
    every = service(renderer).chat(body(**fields))["token_offsets"]
    cut = service(renderer).chat(body(truncate_prompt_tokens=3, **fields))
    assert cut["token_offsets"] == every[-3:]
    (item,) = service(renderer).completions(
        b'{"prompt": [5], "return_token_offsets": true}'
    )
    assert item["token_offsets"] is None


def test_given_ids(renderer: Renderer, trtllm: Renderer, sglang: Renderer) -> None:
    """Each engine's field for a client's own ids; what is no list of ids is refused."""
    fields: list[tuple[Renderer, Any, str]] = [
        (renderer, lambda ids: {"kv_transfer_params": {"prompt_token_ids": ids}}, "kv"),
        (trtllm, lambda ids: {"prompt_token_ids": ids}, "prompt_token_ids"),
        (sglang, lambda ids: {"input_ids": ids}, "input_ids"),
    ]
    for engine, field, param in fields:
        answer = service(engine).chat(body(**field([5, 6])))
        assert answer["token_ids"] == [5, 6]
        for wrong in ([], [-1], ["a"], 5, [999_999_999]):
            refused = refusal(service(engine), **field(wrong))
            assert refused.status == 400
            assert (refused.param or "").startswith(param)
        refused = refusal(service(engine), **field([5] * 5000))
        assert refused.message == (
            "Input length (5000) exceeds model's maximum context length (4096)."
        )
    transfer = {"prompt_token_ids": [5], "remote": "x"}
    answer = service(renderer).chat(body(kv_transfer_params=transfer))
    wanted = {"kv_transfer_params": {"remote": "x"}}
    assert answer["sampling_params"]["extra_args"] == wanted


def test_prompt_text(renderer: Renderer) -> None:
    """The text is there if asked for, by the query or vLLM's own field."""
    text = service(renderer).chat(body(), prompt_text=True)["prompt_text"]
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    answer = service(renderer).chat(body(return_prompt_text=True))
    assert answer["prompt_text"] == text
    assert "prompt_text" not in service(renderer).chat(body())


def test_error_bodies(renderer: Renderer) -> None:
    """OpenAI's shape, or TensorRT-LLM's flat one."""
    refused = refusal(service(renderer), tool_choice="auto")
    message = "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"
    error = {
        "message": message,
        "type": "BadRequestError",
        "param": "tool_choice",
        "code": 400,
    }
    assert refused.body() == {"error": error}
    assert refused.body("trtllm") == {"object": "error", **error}


def test_detokenize_and_models(renderer: Renderer) -> None:
    """Ids to text, special tokens too; the served names."""
    vllm = service(renderer)
    ids = unpack_ids(renderer.render_chat(body()).token_ids)
    text = vllm.chat(body(), prompt_text=True)["prompt_text"]
    sent = json.dumps({"tokens": ids}).encode()
    assert vllm.detokenize(sent) == {"prompt": text}
    assert vllm.detokenize(b'{"tokens": []}') == {"prompt": ""}
    assert refusal(vllm, "detokenize", tokens=[2**40]).status == 400
    assert refusal(vllm, "detokenize", tokens=[-1]).param == "body.tokens.0"
    cards = vllm.models()["data"]
    shown = [(c["id"], c["max_model_len"], c["created"], c["owned_by"]) for c in cards]
    assert shown == [("m", 4096, 7, "vllm"), ("alias", 4096, 7, "vllm")]


def test_tokenize_with_tools(renderer: Renderer) -> None:
    """Tools are tokenized without a parser; fields vLLM's route ignores are ignored."""
    vllm = service(renderer)
    answer = vllm.tokenize(body(tools=[TOOL], reasoning_effort="none", documents=5))
    rendered = renderer.render_chat(body(tools=[TOOL]))
    assert answer["tokens"] == unpack_ids(rendered.token_ids)
    assert answer["count"] == len(rendered)
    assert vllm.tokenize(b'{"prompt": ""}')["tokens"] == []


def test_many_prompts(renderer: Renderer) -> None:
    """The number of prompts of one body is bounded."""
    refused = refusal(service(renderer), "completions", prompt=["a"] * 5000)
    assert (refused.status, refused.param) == (400, "prompt")
