"""Sampling parameters and constraints of a rendered request."""

import json
from typing import Any

import pytest

from render import RenderRefused
from render.fields import CHAT, COMPLETION, read_fields
from render.sampling import chat_sampling, completion_sampling
from render.structured import chat_constraint

TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "g"}},
]


def chat(**body: Any) -> dict[str, Any]:
    """The parameters of a chat body that may generate 100 tokens."""
    fields = read_fields(body, CHAT)
    return chat_sampling(fields, max_tokens=100, parsed=False, tool_call_parser=None)


def completion(max_tokens: int = 100, **body: Any) -> dict[str, Any]:
    """The parameters of a completion body."""
    return completion_sampling(read_fields(body, COMPLETION), max_tokens=max_tokens)


def test_defaults() -> None:
    """What the endpoint sets itself is there, the engine's defaults are not."""
    assert chat() == {
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_p": 1.0,
        "min_p": 0.0,
        "stop": [],
        "stop_token_ids": [],
        "max_tokens": 100,
        "output_kind": 2,
        "skip_clone": True,
        "bad_words": [],
        "skip_reading_prefix_cache": False,
    }


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"n": 2, "seed": 7, "min_tokens": 3}, {"n": 2, "seed": 7, "min_tokens": 3}),
        ({"top_k": 5, "temperature": "0.5"}, {"top_k": 5, "temperature": 0.5}),
        ({"stop": "end"}, {"stop": ["end"], "output_text_buffer_length": 2}),
        (
            {"stop": ["a"], "stop_token_ids": [3]},
            {"stop": ["a"], "stop_token_ids": [3]},
        ),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 4}, {"logprobs": 4}),
        ({"prompt_logprobs": 1}, {"skip_reading_prefix_cache": True}),
        ({"stream": True}, {"output_kind": 1}),
        ({"ignore_eos": True, "bad_words": ["x"]}, {"bad_words": ["x"]}),
        ({"logit_bias": {"5": 200, "6": -1}}, {"logit_bias": {"5": 100.0, "6": -1}}),
        ({"vllm_xargs": {"a": 1}}, {"extra_args": {"a": 1}}),
        ({"thinking_token_budget": 9}, {"thinking_token_budget": 9}),
    ],
)
def test_fields(body: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Fields of the body as the engine's record has them."""
    assert wanted.items() <= chat(**body).items()


def test_echo_of_a_completion() -> None:
    """With echo and nothing to generate, one token is generated all the same."""
    params = completion(max_tokens=0, echo=True, logprobs=2)
    assert (params["max_tokens"], params["prompt_logprobs"]) == (1, 2)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, None),
        ({"min_p": 2}, None),
        ({"presence_penalty": 3}, None),
        ({"frequency_penalty": -2.5}, None),
        ({"repetition_penalty": 0}, None),
        ({"repetition_penalty": "inf"}, None),
        ({"n": 0}, None),
        ({"n": 2, "temperature": 0}, None),
        ({"n": 20000}, None),
        ({"min_tokens": -1}, None),
        ({"min_tokens": 101}, None),
        ({"stop": [""]}, None),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"temperature": "hot"}, "body.temperature"),
        ({"seed": 2**63}, "body.seed"),
        ({"n": 1.5}, "body.n"),
        ({"stream": "maybe"}, "body.stream"),
        ({"ignore_eos": None}, "body.ignore_eos"),
        ({"stop": ["a", 5]}, "body.stop.1"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "body.stop"),
        ({"reasoning_effort": "much"}, "body.reasoning_effort"),
    ],
)
def test_refused(body: dict[str, Any], param: str | None) -> None:
    """Out of range, or of another type: 400; vLLM does not name every field."""
    with pytest.raises(RenderRefused) as caught:
        chat(**body)
    assert (caught.value.status, caught.value.param) == (400, param)


def constraint(parser: str | None = None, **body: Any) -> dict[str, Any]:
    """The constraint of a chat body, without what is not set."""
    found = chat_constraint(read_fields(body, CHAT), parser)
    assert found is not None
    return {name: value for name, value in found.items() if value not in (None, False)}


def test_constraints() -> None:
    """A body's own constraint, a format, or a call that is demanded."""
    assert constraint(structured_outputs={"regex": "a+"}) == {"regex": "a+"}
    assert constraint(response_format={"type": "json_object"}) == {"json_object": True}
    text = read_fields({"response_format": {"type": "text"}}, CHAT)
    assert chat_constraint(text, None) is None
    named = {"type": "function", "function": {"name": "f"}}
    assert constraint(tools=TOOLS, tool_choice=named) == {"json": {"type": "object"}}
    required = constraint(tools=TOOLS, tool_choice="required")["json"]
    names = [c["properties"]["name"]["enum"] for c in required["items"]["anyOf"]]
    assert names == [["f"], ["g"]]
    for both in ({"regex": "a", "grammar": "b"}, {}):
        with pytest.raises(RenderRefused, match="one kind of structured outputs"):
            constraint(structured_outputs=both)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({"temperature": 1e-6}, {"temperature": 0.01}),
        ({"seed": -1}, {"seed": None}),
        ({"thinking_token_budget": -1}, {"thinking_token_budget": None}),
        ({"top_k": -1}, {"top_k": -1}),
        ({"stop_token_ids": [3, 3, 1]}, {"stop_token_ids": [3, 1]}),
        ({"bad_words": ["a", "a"]}, {"bad_words": ["a"]}),
        ({"logit_bias": {"-1": "2"}}, {"logit_bias": {"-1": 2.0}}),
        ({"logprob_token_ids": []}, {"logprob_token_ids": None}),
        (
            {"repetition_detection": {"max_pattern_size": 3, "min_count": 2}},
            {
                "repetition_detection": {
                    "max_pattern_size": 3,
                    "min_pattern_size": 0,
                    "min_count": 2,
                }
            },
        ),
    ],
)
def test_normalized(body: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Values that the engine writes in another way, or leaves out."""
    found = chat(**body)
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 2.1},
        {"thinking_token_budget": -2},
        {"bad_words": [""]},
        {"stop": ""},
        {"repetition_detection": {"max_pattern_size": 3}},
        {"repetition_detection": {"max_pattern_size": 1, "min_pattern_size": 2}},
        {"vllm_xargs": {"a": None}},
        {"structured_outputs": {"choice": "ab"}},
        {"structured_outputs": {"json": 5}},
    ],
)
def test_more_is_refused(body: dict[str, Any]) -> None:
    """Values that the engine's own record does not take."""
    with pytest.raises(RenderRefused) as caught:
        chat(**body)
    assert caught.value.status == 400


def test_the_engines_default_is_left_out() -> None:
    """Sixteen tokens are what the engine generates if it is told nothing."""
    assert "max_tokens" not in completion(16)
    assert completion(17)["max_tokens"] == 17


def test_a_tool_that_may_be_called_in_a_bound_way() -> None:
    """With a strict tool, or one call only, also an automatic choice is a tag."""
    assert chat_constraint(read_fields({"tools": TOOLS}, CHAT), "hermes") is None
    strict = [{"type": "function", "function": {"name": "g", "strict": True}}]
    for fields in ({"tools": strict}, {"tools": TOOLS, "parallel_tool_calls": False}):
        tag = json.loads(constraint("hermes", **fields)["structural_tag"])["format"]
        assert (tag["type"], tag["triggers"]) == ("triggered_tags", ["<tool_call>"])
        assert tag["stop_after_first"] is ("parallel_tool_calls" in fields)
    both = constraint("hermes", tools=strict, structured_outputs={"regex": "a"})
    tag = json.loads(both["structural_tag"])["format"]
    assert [one["type"] for one in tag["elements"]] == ["tags_with_separator", "regex"]
