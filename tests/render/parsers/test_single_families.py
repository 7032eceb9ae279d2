"""What only one family does: nested elements, blocks, recipients, token suffixes."""

import json
from typing import Any

import pytest

from render.parsers.answer import AnswerParser
from render.parsers.events import Call
from render.parsers.values import Tools
from tests.render.models import byte_level
from tests.render.parsers.answers import WEATHER, Parsed, cut, format_of, parse
from tests.render.parsers.written import CALLS, M3

ORDER = {
    "type": "function",
    "function": {
        "name": "order",
        "parameters": {
            "type": "object",
            "properties": {
                "user": {"type": "integer"},
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "sku": {"type": "string"},
                            "n": {"type": "integer"},
                        },
                    },
                },
                "price": {"type": "object", "properties": {"net": {"type": "number"}}},
                "notes": {"type": ["array", "null"], "items": {"type": "string"}},
                "free": {},
            },
        },
    },
}


def _everywhere(reasoning: str | None, tools: str | None, answer: str) -> Parsed:
    """An answer parsed by tokens and by letters in any pieces: always the same."""
    format = format_of(reasoning, tools)
    given = [WEATHER, ORDER]
    parsed = parse(format, [answer], tools=given)
    for size in (1, 2, 7):
        pieces = cut(answer, size)
        assert parse(format, pieces, tools=given, tokens=False) == parsed
    return parsed


def _element(name: str, inner: str) -> str:
    return f"{M3}<{name}>{inner}{M3}</{name}>"


def _ordered(written: str) -> str:
    """A call of MiniMax M3 with these elements."""
    invoke = f'{M3}<invoke name="order">{written}{M3}</invoke>'
    return f"{M3}<tool_call>{invoke}{M3}</tool_call>"


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        (_element("user", "42"), {"user": 42}),
        (
            _element(
                "items",
                _element("item", _element("sku", "b<1>") + _element("n", "2"))
                + "\n"
                + _element("item", _element("sku", "7")),
            ),
            {"items": [{"sku": "b<1>", "n": 2}, {"sku": "7"}]},
        ),
        (_element("price", _element("net", "1.5")), {"price": {"net": 1.5}}),
        (_element("items", "") + _element("price", " "), {"items": [], "price": {}}),
        (_element("notes", _element("item", "x")), {"notes": ["x"]}),
        (
            _element("free", _element("k", "1") + _element("k", "2")),
            {"free": {"k": ["1", "2"]}},
        ),
        (
            _element("free", "said" + _element("k", "1")),
            {"free": {"k": "1", "$text": "said"}},
        ),
        (_element("unknown", "12"), {"unknown": "12"}),
        ("", {}),
    ],
)
def test_nested_elements(written: str, arguments: dict[str, Any]) -> None:
    """Lists, objects and values by the schema, as vLLM 0.32 has each of these."""
    call = _ordered(written)
    ((name, found),) = _everywhere(None, "minimax_m3", call).calls
    assert (name, json.loads(found)) == ("order", arguments)


@pytest.mark.parametrize(
    "written",
    [
        f"{M3}<user>42",
        f"{M3}<user>42{M3}</other>",
        f"{M3}<>{M3}</>",
        f"said {_element('user', '1')}",
        f"{M3}<a>" * 100 + f"{M3}</a>" * 100,
    ],
    ids=["open", "crossed", "nameless", "text", "too deep"],
)
def test_elements_that_are_none(written: str) -> None:
    """A call of these is text, every letter of it."""
    call = _ordered(written)
    parsed = _everywhere(None, "minimax_m3", call)
    assert (parsed.content, parsed.calls) == (call, [])


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "get_weather", "arguments": {"days": 2}}', {"days": 2}),
        (
            "get_weather<ifm|arg_key>days</ifm|arg_key><ifm|arg_value>2"
            "</ifm|arg_value><ifm|arg_key>zip</ifm|arg_key><ifm|arg_type>string"
            "</ifm|arg_type><ifm|arg_value>012</ifm|arg_value>",
            {"days": 2, "zip": "012"},
        ),
        ("get_weather", {}),
    ],
    ids=["json", "tags", "none"],
)
def test_k2_horizon(body: str, arguments: dict[str, Any]) -> None:
    """Its three formats, whichever the request asked for; thinking by its effort."""
    call = f"<ifm|tool_calls><ifm|tool_call>{body}</ifm|tool_call></ifm|tool_calls>"
    for answer in (f"why{call}", f"why</ifm|think_fast>{call}"):
        parsed = _everywhere("k2_horizon", "k2_horizon", answer)
        assert parsed.reasoning == "why"
        ((name, found),) = parsed.calls
        assert (name, json.loads(found)) == ("get_weather", arguments)


def test_inkling() -> None:
    """Blocks of any kind in any order; names between their marks are no text."""
    call = CALLS["inkling"]
    answer = (
        "<|content_thinking|>why<|end_message|><|message_model|><|content_text|>so"
        f"<|end_message|>{call}<|message_model|><|content_text|> and<|end_message|>"
    )
    parsed = _everywhere("inkling", "inkling", answer)
    assert (parsed.reasoning, parsed.content) == ("why", "so and")
    assert [name for name, _ in parsed.calls] == ["get_weather"]
    format = format_of("inkling", None)
    going_on = parse(format, ["why<|end_message|>"], prompt="<|content_thinking|>")
    assert (going_on.reasoning, going_on.content) == ("why", "")
    broken = "<|content_invoke_tool_json|>{<|end_message|>"
    assert _everywhere(None, "inkling", broken).content == broken


def test_muse_glimmer() -> None:
    """Messages by whom they are for; a tool's name in thought is no call."""
    invoke = '<atem:invoke name="get_weather"></atem:invoke>'
    answer = (
        f" to=self<|message|>why {invoke}<|eom|><|start|>assistant"
        f" to=get_weather<|message|>{invoke}<|eom|>"
        "<|start|>assistant to=user<|message|>so to=x<|eot|>"
    )
    parsed = _everywhere("muse_glimmer", "muse_glimmer", answer)
    assert (parsed.reasoning, parsed.content) == (f"why {invoke}", "so to=x")
    assert parsed.calls == [("get_weather", "{}")]


def test_muse_glimmer_leaves_out_an_end() -> None:
    """A thought that only the next header ends; an answer without any header."""
    answer = " to=self<|message|>why to=user<|message|>so"
    parsed = _everywhere("muse_glimmer", None, answer)
    assert (parsed.reasoning, parsed.content) == ("why", "so")
    assert _everywhere("muse_glimmer", None, "assistance to=you").content == (
        "assistance to=you"
    )


def test_plamo3_and_step3_reason() -> None:
    """Their own tokens, and a call that ends the thought."""
    thought = "why<|plamo:end_think:plamo|>so"
    parsed = _everywhere("plamo3", "plamo3", thought)
    assert (parsed.reasoning, parsed.content) == ("why", "so")
    parsed = _everywhere("step3", "step3", f"why</think>so{CALLS['step3']}")
    assert (parsed.reasoning, parsed.content) == ("why", "so")
    assert len(parsed.calls) == 1


@pytest.mark.parametrize("name", ["hy_v3", "hy_v4"])
def test_a_suffix_of_all_tokens(name: str) -> None:
    """A checkpoint's delimiters may have one: found by id, and written out again."""
    format = format_of(name, name)
    suffixed = [f"{text[:-1]}:6124c78e>" for text in format.delimiters]
    tokenizer = byte_level(specials=[*suffixed])
    added = {t.content: i for i, t in tokenizer.get_added_tokens_decoder().items()}
    marks = format.marks(added)
    assert {marks.texts[mark] for mark in marks.by_id.values()} == {*suffixed}
    answer = f"<think>why</think>{CALLS[name]}"
    for text in format.delimiters:
        answer = answer.replace(text, marks.of(text))
    parser = AnswerParser(
        format, marks, tools=Tools([WEATHER]), calls=True, prompt=None, variables={}
    )
    events = [*parser.feed(answer), *parser.end()]
    (call,) = (event for event in events if isinstance(event, Call))
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert marks.plain(marks.of("<tool_call>")) == "<tool_call:6124c78e>"
    assert {*format.marks({}).texts.values()} == {*format.delimiters}
