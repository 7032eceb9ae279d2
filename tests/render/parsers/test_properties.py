"""For any answer: the cuts never matter, and nothing is lost or invented."""

import json
import random
import re
import time
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from render.parsers.call_formats import CALL_FORMATS
from render.parsers.formats import WHOLE as WHOLE_FORMATS
from render.parsers.formats import (
    Format,
    find_format,
    reasoning_parsers,
    tool_parsers,
)
from render.parsers.reasoning_formats import REASONING_FORMATS
from tests.render.parsers.answers import cut, format_of, parse
from tests.render.parsers.test_families import BARE, WHOLE
from tests.render.parsers.written import CALLS, M3

PAIRS = [
    *((None, name) for name in sorted({*CALL_FORMATS, *WHOLE_FORMATS})),
    *((name, None) for name in sorted(REASONING_FORMATS)),
    ("qwen3", "hermes"),
    ("deepseek_v3", "deepseek_v31"),
    ("glm45", "glm47"),
    ("kimi_k2", "kimi_k2"),
    ("mistral", "mistral"),
    ("minimax_m2", "minimax_m2"),
    ("gemma4", "gemma4"),
]
QUICK = settings(max_examples=25, deadline=None, phases=[Phase.generate])
WORDS = [
    "a",
    " ",
    "\n",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    "=",
    ">",
]
WORDS += [
    '{"name": "f", "arguments": {}}',
    "f(x=1)",
    "call:f{",
    "name",
    "assistant",
    "é",
    "🚢",
]


def garbage(format: Format, choose: random.Random, words: int) -> list[str]:
    """Delimiters, brackets and letters in any order."""
    known = [*WORDS, *format.delimiters, *format.delimiters]
    return [choose.choice(known) for _ in range(choose.randrange(words))]


def within_each_other(format: Format) -> bool:
    """Whether words can make up another token than those that they are."""
    return any(
        one in other and one != other
        for one in format.delimiters
        for other in format.delimiters
    )


@pytest.mark.parametrize(("reasoning", "tools"), PAIRS, ids=str)
@given(choose=st.randoms(use_true_random=False))
@QUICK
def test_cuts_never_matter(
    reasoning: str | None, tools: str | None, choose: random.Random
) -> None:
    """Garbage at once, by words, and by single letters where these are found."""
    format = format_of(reasoning, tools)
    words = garbage(format, choose, 30)
    text = "".join(words)
    if not within_each_other(format):
        assert parse(format, words) == parse(format, [text])
    letters = parse(format, [text], tokens=False)
    for size in (1, 3):
        assert parse(format, cut(text, size), tokens=False) == letters


@pytest.mark.parametrize(
    ("reasoning", "tools"), [pair for pair in PAIRS if not WHOLE & {*pair}], ids=str
)
@given(choose=st.randoms(use_true_random=False))
@QUICK
def test_nothing_is_lost_or_invented(
    reasoning: str | None, tools: str | None, choose: random.Random
) -> None:
    """Words among garbage that is no call come out again, in their order."""
    format = format_of(reasoning, tools)
    words = [f"w{i}" for i in range(6)]
    mixed = [one for word in words for one in (word, *garbage(format, choose, 8))]
    parsed = parse(format, mixed)
    if parsed.calls:
        return
    assert re.findall(r"w\d", parsed.reasoning) == [
        word for word in words if word in parsed.reasoning
    ]
    said = parsed.reasoning + parsed.content
    assert sorted(re.findall(r"w\d", said)) == words
    assert len(said) <= len("".join(mixed))


VALUES = st.recursive(
    st.text(max_size=12) | st.integers(-9, 9) | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
IN_JSON = {
    "hermes": "<tool_call>\n{}\n</tool_call>",
    "granite": "<|tool_call|>[{}]",
    "mistral": "[TOOL_CALLS][{}]",
    "llama3_json": "{}",
    "llama4_json": "<|python_tag|>{}",
    "jamba": "<tool_calls>[{}]</tool_calls>",
}


@pytest.mark.parametrize("name", IN_JSON)
@given(arguments=st.dictionaries(st.text(max_size=6), VALUES, max_size=4))
@QUICK
def test_any_arguments_in_json(name: str, arguments: dict[str, Any]) -> None:
    """Whatever a call's arguments are, they come out, in any pieces."""
    call = json.dumps({"name": "f", "arguments": arguments}, ensure_ascii=False)
    written = IN_JSON[name].replace("{}", call)
    for size in (1, 4, 10_000):
        parsed = parse(format_of(None, name), cut(written, size), tokens=False)
        ((called, given_),) = parsed.calls
        assert (called, json.loads(given_)) == ("f", arguments)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - BARE))
@given(before=st.text(max_size=30), size=st.integers(1, 9))
@settings(QUICK, max_examples=15)
def test_any_text_before_a_call(name: str, before: str, size: int) -> None:
    """It is content, unchanged but for the space that is markup."""
    if name in WHOLE or name in ("llama4_pythonic", "phi4_mini_json"):
        return  # text outside of a message, or whole answers
    format = format_of(None, name)
    assume(not any(mark in before for mark in format.delimiters))
    parsed = parse(format, cut(before + CALLS[name], size), tokens=False)
    assert parsed.content == (before if before.strip() else "")
    assert len(parsed.calls) == 1


def test_every_name_has_a_format() -> None:
    """Names alone, and both of a model."""
    for name in tool_parsers():
        assert find_format(None, name) is not None
    for name in reasoning_parsers():
        assert find_format(name, None) is not None
    assert find_format(None, None) is None
    with pytest.raises(KeyError):
        find_format("nonsense", None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "<tool_call>```" + " " * 200_000 + "x</tool_call>"),
        ("hermes", "<tool_call>" + '{"a":' * 50_000 + "</tool_call>"),
        ("hermes", '<tool_call>"' * 20_000),
        ("qwen3_coder", "<tool_call><function=f>" + "\n<parameter=a>" * 20_000),
        ("qwen3_coder", "<function=f></function>" + " " * 200_000 + "x"),
        ("deepseek_v31", "\N{FULLWIDTH VERTICAL LINE}" * 100_000),
        ("pythonic", "\n" * 200_000),
        ("pythonic", "[f(x=" + "(" * 100_000),
        ("pythonic", "[f(x=" + "1+" * 100_000 + "1)]"),
        ("llama3_json", " {" * 100_000),
        ("gemma4", "<|tool_call>call:f{a:" + "{b:" * 50_000 + "<tool_call|>"),
        ("glm45", "<tool_call>f" + "<arg_key>a</arg_key><arg_value>b" * 10_000),
        ("openai", "<|start|>" + " " * 200_000 + "to=x" * 50_000),
        ("minimax_m3", f"{M3}<tool_call>{M3}<invoke name=f>" + f"{M3}<a>" * 20_000),
        ("minimax_m3", f"{M3}<invoke name=f>" + f"{M3}<a>{M3}</a>" * 20_000),
        ("k2_horizon", "<ifm|tool_call>f" + "<ifm|arg_key>a</ifm|arg_key>" * 10_000),
        ("minicpm5", "<function name=f>" + "<param name=a>" * 20_000),
        ("step3", "<steptml:parameter name=" * 10_000),
        ("plamo3", "<|plamo:begin_tool_name:plamo|>" * 10_000),
        ("inkling", "<|content_invoke_tool_json|>{" * 10_000),
        ("muse_glimmer", " to=f<|message|>" + "<atem:invoke name=" * 20_000),
        ("muse_glimmer", " to=user<|message|>" + " to=f" * 50_000),
        ("muse_glimmer", " to=f<|message|>" + '<atem:invoke name="f">' * 20_000),
        ("kimi_k3", '<|open|>call tool="f"<|sep|>' * 10_000),
    ],
    ids=lambda value: value[:12],
)
def test_hostile_answers_take_no_longer(name: str, text: str) -> None:
    """Input made to be slow, in small pieces: a few microseconds a character."""
    begun = time.process_time()
    parsed = parse(format_of(None, name), cut(text, 40), tokens=False)
    assert time.process_time() - begun < 10
    assert not parsed.calls
