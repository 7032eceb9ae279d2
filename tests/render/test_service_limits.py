"""Lengths of prompts and answers against the model's context."""

import time

import pytest

from render import Renderer, RenderRefused
from tests.render.services import USER, body, refusal, service


def test_characters_before_tokens(vllm: Renderer) -> None:
    """A text that is too long by its characters alone is refused without tokenizing."""
    content = "a" * 30_000_000
    sent = body(messages=[{**USER, "content": content}])
    served = service(vllm)
    start = time.perf_counter()
    with pytest.raises(RenderRefused) as caught:
        served.chat(sent)
    assert time.perf_counter() - start < 2
    assert (caught.value.status, caught.value.param) == (400, "input_text")
    assert "more than 524288 characters" in caught.value.message


def test_output_is_what_fits(vllm: Renderer) -> None:
    """As much as is left is generated; more than the context is refused by name."""
    ids = len(service(vllm).chat(body())["token_ids"])
    room = 4096 - ids
    answer = service(vllm).chat(body(max_tokens=room))
    assert answer["sampling_params"]["max_tokens"] == room
    more = service(vllm).chat(body(max_tokens=room + 1))
    assert more["sampling_params"]["max_tokens"] == room
    refused = refusal(service(vllm), max_completion_tokens=4097)
    assert refused.param == "max_completion_tokens"
    assert refusal(service(vllm), max_tokens=0).param == "max_tokens"
    assert service(vllm).chat(body())["sampling_params"]["max_tokens"] == room


def test_truncation(vllm: Renderer, trtllm: Renderer) -> None:
    """The last tokens stay, of TensorRT-LLM's the first; the side may be said."""
    every = service(vllm).chat(body())["token_ids"]
    cut = body(truncate_prompt_tokens=3)
    assert service(vllm).chat(cut)["token_ids"] == every[-3:]
    assert service(trtllm).chat(cut)["token_ids"] == every[:3]
    right = body(truncate_prompt_tokens=3, truncation_side="right")
    assert service(vllm).chat(right)["token_ids"] == every[:3]
    fits = service(vllm, max_model_len=8)
    kept = fits.chat(body(truncate_prompt_tokens=-1, max_tokens=2))["token_ids"]
    assert kept == every[-7:]
    refused = refusal(fits, truncate_prompt_tokens=9, max_tokens=2)
    assert refused.param == "truncate_prompt_tokens"
    assert refusal(service(vllm), truncate_prompt_tokens=0).status == 400
    assert refusal(service(vllm), truncation_side="up").param == (
        "body.truncation_side"
    )


def test_offsets_of_a_truncated_prompt(vllm: Renderer) -> None:
    """They are those of the ids that are left; ids that are given have none."""
    fields = {"return_token_offsets": True}
    every = service(vllm).chat(body(**fields))["token_offsets"]
    cut = service(vllm).chat(body(truncate_prompt_tokens=3, **fields))
    assert cut["token_offsets"] == every[-3:]
    (item,) = service(vllm).completions(
        b'{"prompt": [5], "return_token_offsets": true}'
    )
    assert item["token_offsets"] is None


def test_many_prompts(vllm: Renderer) -> None:
    """The number of prompts of one body is bounded."""
    refused = refusal(service(vllm), "completions", prompt=["a"] * 5000)
    assert (refused.status, refused.param) == (400, "prompt")


def test_sglang_knows_no_truncation(sglang: Renderer) -> None:
    """What its bodies do not have is not looked at."""
    every = service(sglang).chat(body())["token_ids"]
    for tokens in (3, -1, 5000):
        cut = body(truncate_prompt_tokens=tokens, add_special_tokens=True)
        assert service(sglang).chat(cut)["token_ids"] == every
