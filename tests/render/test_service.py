"""Render endpoints: what the captures do not show."""

import json
from typing import Any

from kvindex.blocks import unpack_ids
from render import Renderer, RenderOptions, RenderService
from render.profiles.trtllm_fields import CHAT_FIELDS, COMPLETION_FIELDS
from render.schema import TRTLLM_KEYS, VLLM_KEYS
from simworker.trtllm import fields
from tests.render.services import USER, body, refusal, service

TOOL = {"type": "function", "function": {"name": "f"}}


def test_dialects_narrow_the_keys(vllm: Renderer) -> None:
    """The union has all keys of both; a dialect only its own, with equal values."""
    union = service(vllm).chat(body())
    assert set(union) == {*TRTLLM_KEYS, *VLLM_KEYS}
    assert union["schema_version"] == 1
    assert union["kind"] == "chat"
    for dialect, keys in (("trtllm", TRTLLM_KEYS), ("vllm", VLLM_KEYS)):
        narrow = service(vllm, dialect=dialect).chat(body())
        assert narrow == {key: union[key] for key in keys}


def test_the_request_is_the_clients(vllm: Renderer) -> None:
    """Unknown fields, nulls and numbers come back as they were sent."""
    sent = {
        "messages": [USER],
        "alien": {"b": [1.0, None]},
        "temperature": 1,
        "n": None,
    }
    answer = service(vllm).chat(json.dumps(sent).encode())
    assert json.dumps(answer["request"]) == json.dumps(sent)
    items = service(vllm).completions(b'{"prompt": ["a", "b"], "seed": 3}')
    assert [item["request"] for item in items] == [
        {"prompt": "a", "seed": 3},
        {"prompt": "b", "seed": 3},
    ]
    (item,) = service(vllm).completions(b'{"prompt": [5, 6]}')
    assert item["request"] == {"prompt": [5, 6]}


def test_request_ids(vllm: Renderer, trtllm: Renderer) -> None:
    """The header's, else the body's, else a new one; completions by profile."""
    served = service(vllm)
    assert served.chat(body())["request_id"] == "chatcmpl-0123"
    assert served.chat(body(request_id="b"))["request_id"] == "chatcmpl-b"
    answer = served.chat(body(request_id="b"), request_id="h")
    assert answer["request_id"] == "chatcmpl-h"
    one, two = b'{"prompt": "a"}', b'{"prompt": ["a", "b"]}'
    assert [c["request_id"] for c in served.completions(one)] == ["cmpl-0123"]
    assert [c["request_id"] for c in served.completions(two, request_id="h")] == [
        "cmpl-h-0",
        "cmpl-h-1",
    ]
    assert [c["request_id"] for c in service(trtllm).completions(one)] == [
        "cmpl-0123-0"
    ]
    fresh = RenderService(trtllm, RenderOptions(served_model_names=("m",)))
    assert len(fresh.chat(body())["request_id"]) == len("chatcmpl-") + 32
    fresh = RenderService(vllm, RenderOptions(served_model_names=("m",)))
    assert len(fresh.chat(body())["request_id"]) == len("chatcmpl-") + 16
    assert served.responses(b'{"input": "x"}')["request_id"] == "resp_0123"


def test_models_a_request_may_name(vllm: Renderer) -> None:
    """Any served name, or none; the answer copies it."""
    served = service(vllm)
    assert served.chat(body(model="alias"))["model"] == "alias"
    assert served.chat(body())["model"] is None
    for route in ("chat", "tokenize"):
        refused = refusal(served, route, model="x")
        assert (refused.status, refused.param) == (404, "model")


def test_reasoning(vllm: Renderer, trtllm: Renderer) -> None:
    """What the prompt does not say is false for vLLM, null for TensorRT-LLM."""
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    history = [USER, {"role": "assistant", "content": "<think>a</think>b"}, USER]
    for engine, unsaid in ((vllm, False), (trtllm, None)):
        parsed = service(engine, reasoning_parser="qwen3")
        assert parsed.chat(body())["reasoning_ended"] is unsaid
        assert parsed.chat(body(messages=history))["reasoning_ended"] is unsaid
        assert parsed.chat(body(**off))["reasoning_ended"] is True
        assert service(engine).chat(body(**off))["reasoning_ended"] is None
    parsed = service(vllm, reasoning_parser="qwen3")
    assert parsed.chat(body(include_reasoning=False))["reasoning_ended"] is True
    kwargs = service(trtllm, reasoning_parser="qwen3").chat(body(**off))
    wanted = {"chat_template_kwargs": {"enable_thinking": False}}
    assert kwargs["reasoning_parser_kwargs"] == wanted


def test_fields_that_tensorrt_llm_does_not_take(
    vllm: Renderer, trtllm: Renderer
) -> None:
    """Its render routes refuse them, but for those meant for a gateway."""
    strict = service(trtllm)
    for route in ("chat", "completions"):
        asked = {"prompt": "a"} if route == "completions" else {}
        refused = refusal(strict, route, include_reasoning=False, **asked)
        assert refused.status == 400
        assert "include_reasoning" in refused.message
    answer = strict.chat(body(nvext={"a": 1}, cache_namespace="b", top_k=3))
    assert "nvext" not in answer["request"]
    assert "cache_namespace" not in answer["request"]
    assert answer["request"]["top_k"] == 3
    assert service(vllm).chat(body(no_such_field=1))["token_ids"]


def test_their_names_are_those_of_the_simulated_worker() -> None:
    """Two lists of one engine's fields, in two rooms."""
    assert set(fields.CHAT) == CHAT_FIELDS
    assert set(fields.COMPLETION) == COMPLETION_FIELDS


def test_an_open_reasoning(vllm: Renderer) -> None:
    """A prompt that opens the reasoning leaves the model in it."""
    messages = [USER, {"role": "assistant", "content": "<think>\nhm"}]
    open_ = body(
        messages=messages, continue_final_message=True, add_generation_prompt=False
    )
    parsed = service(vllm, reasoning_parser="qwen3")
    assert parsed.chat(open_)["reasoning_ended"] is False


def test_tools_without_a_parser(
    vllm: Renderer, trtllm: Renderer, sglang: Renderer
) -> None:
    """vLLM's profile refuses them, the others render; with a parser all do."""
    named = {"type": "function", "function": {"name": "f"}}
    for choice in ("auto", "required", named):
        refused = refusal(service(vllm), tools=[TOOL], tool_choice=choice)
        assert (refused.status, refused.type) == (400, "BadRequestError")
        for engine in (trtllm, sglang):
            answer = service(engine).chat(body(tools=[TOOL], tool_choice=choice))
            assert len(answer["token_ids"]) > 100
        parsed = service(vllm, tool_call_parser="x")
        answer = parsed.chat(body(tools=[TOOL], tool_choice=choice))
        assert len(answer["token_ids"]) > 100
    # Routing renders what the endpoint refuses.
    assert len(vllm.render_chat(body(tools=[TOOL]))) > 100


def test_request_templates(vllm: Renderer) -> None:
    """Used if trusted; never opened as a file; a broken one is refused."""
    source = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    refused = refusal(service(vllm), chat_template=source)
    assert "--trust-request-chat-template" in refused.message
    trusting = service(vllm, trust_request_chat_template=True)
    answer = trusting.chat(body(chat_template=source), prompt_text=True)
    assert answer["prompt_text"] == "[hi]"
    answer = trusting.chat(body(chat_template="/etc/passwd"), prompt_text=True)
    assert answer["prompt_text"] == "/etc/passwd"
    assert refusal(trusting, chat_template="{% for %}").status == 400
    parsing = service(vllm, trust_request_chat_template=True, reasoning_parser="qwen3")
    answer = parsing.chat(body(chat_template=source))
    assert "chat_template" not in answer["reasoning_parser_kwargs"]
    refused = refusal(trusting, chat_template_kwargs={"chat_template": source})
    assert refused.status == 400


def test_media_is_named(vllm: Renderer) -> None:
    """The part is named; nothing of it is shown."""
    part = {"type": "image_url", "image_url": {"url": "data:secret"}}
    content = [{"type": "text", "text": "see"}, part]
    refused = refusal(service(vllm), messages=[{**USER, "content": content}])
    assert refused.message == (
        "m is not a multimodal model (messages.0.content.1 is image_url)"
    )


def test_given_ids(vllm: Renderer, trtllm: Renderer, sglang: Renderer) -> None:
    """Each engine's field for a client's own ids; what is no list of ids is refused."""
    fields: list[tuple[Renderer, Any, str]] = [
        (vllm, lambda ids: {"kv_transfer_params": {"prompt_token_ids": ids}}, "kv"),
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
    parsing = service(vllm, reasoning_parser="qwen3")
    ids: Any = {"kv_transfer_params": {"prompt_token_ids": [5]}}
    assert refusal(parsing, chat_template_kwargs={"tokenize": 1}, **ids).status == 400
    transfer = {"prompt_token_ids": [5], "remote": "x"}
    answer = service(vllm).chat(body(kv_transfer_params=transfer))
    wanted = {"kv_transfer_params": {"remote": "x"}}
    assert answer["sampling_params"]["extra_args"] == wanted


def test_prompt_text(vllm: Renderer) -> None:
    """The text is there if asked for, by the query or vLLM's own field."""
    text = service(vllm).chat(body(), prompt_text=True)["prompt_text"]
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    answer = service(vllm).chat(body(return_prompt_text=True))
    assert answer["prompt_text"] == text
    assert "prompt_text" not in service(vllm).chat(body())


def test_error_bodies(vllm: Renderer) -> None:
    """OpenAI's shape, or TensorRT-LLM's flat one."""
    refused = refusal(service(vllm), tool_choice="auto")
    message = "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)"
    error = {
        "message": message,
        "type": "BadRequestError",
        "param": "tool_choice",
        "code": 400,
    }
    assert refused.body() == {"error": error}
    assert refused.body("trtllm") == {"object": "error", **error}


def test_detokenize_and_models(vllm: Renderer) -> None:
    """Ids to text, special tokens too; the served names."""
    served = service(vllm)
    ids = unpack_ids(vllm.render_chat(body()).token_ids)
    text = served.chat(body(), prompt_text=True)["prompt_text"]
    sent = json.dumps({"tokens": ids}).encode()
    assert served.detokenize(sent) == {"prompt": text}
    assert served.detokenize(b'{"tokens": []}') == {"prompt": ""}
    assert refusal(served, "detokenize", tokens=[2**40]).status == 400
    assert refusal(served, "detokenize", tokens=[-1]).param == "body.tokens.0"
    cards = served.models()["data"]
    shown = [(c["id"], c["max_model_len"], c["created"], c["owned_by"]) for c in cards]
    assert shown == [("m", 4096, 7, "vllm"), ("alias", 4096, 7, "vllm")]


def test_tokenize_with_tools(vllm: Renderer) -> None:
    """Tools are tokenized without a parser; fields vLLM's route ignores are ignored."""
    served = service(vllm)
    answer = served.tokenize(body(tools=[TOOL], reasoning_effort="none", documents=5))
    rendered = vllm.render_chat(body(tools=[TOOL]))
    assert answer["tokens"] == unpack_ids(rendered.token_ids)
    assert answer["count"] == len(rendered)
    assert served.tokenize(b'{"prompt": ""}')["tokens"] == []
