"""A call, an answer and a broken call in the words of each family."""

import json

import pytest

from tests.render.parsers.answers import cut, format_of, parse
from tests.render.parsers.written import CALLS, PARIS

BARE = {"llama3_json", "pythonic"}  # nothing may stand beside such a call
TO_THE_END = {"mistral", "llama4_json"}  # a call has no closing tag
WHOLE = {"openai", "openai_gptoss", "gpt-oss", "kimi_k3", "inkling", "muse_glimmer"}


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str, tokens: bool) -> None:
    """Its name and arguments; the delimiters are tokens, or letters in any pieces."""
    format = format_of(None, name)
    for size in (1, 2, 7, 10_000):
        pieces = [CALLS[name]] if tokens else cut(CALLS[name], size)
        parsed = parse(format, pieces, tokens=tokens)
        assert parsed.content == ""
        ((called, arguments),) = parsed.calls
        assert (called, json.loads(arguments)) == ("get_weather", PARIS)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - BARE - WHOLE))
def test_text_around_a_call(name: str) -> None:
    """It is content, the same in any pieces; two calls are two."""
    call = CALLS[name]
    format = format_of(None, name)
    for size in (1, 5, 10_000):
        pieces = cut(f"Let me see.{call}\n{call}", size)
        parsed = parse(format, pieces, tokens=False)
        assert parsed.content == "Let me see."
        assert [called for called, _ in parsed.calls] == ["get_weather"] * 2


@pytest.mark.parametrize("name", sorted(CALLS.keys() - WHOLE))
def test_a_cut_call_is_text(name: str) -> None:
    """An answer that ends in the middle of its first call: no call, nothing lost."""
    format = format_of(None, name)
    written = CALLS[name]
    for end in range(len(written) // 2, len(written) - 25):
        parsed = parse(format, cut(written[:end], 3), tokens=False)
        if not parsed.calls:
            assert parsed.content == written[:end]


def test_letters_are_no_token() -> None:
    """Where a delimiter is a token, the same letters in a text are text."""
    text = f"I would write <tool_call> and </think> here: {CALLS['hermes']}"
    parsed = parse(format_of("qwen3", "hermes"), [text], prompt="", letters=True)
    assert (parsed.reasoning, parsed.calls) == (text, [])


def test_typed_by_the_schema() -> None:
    """Arguments in tags are what the tool's parameters say."""
    written = (
        "<tool_call><function=get_weather><parameter=city>12</parameter>"
        "<parameter=days>3</parameter><parameter=exact>True</parameter>"
        '<parameter=where>{"x": null}</parameter></function></tool_call>'
    )
    ((_, arguments),) = parse(format_of(None, "qwen3_coder"), [written]).calls
    assert json.loads(arguments) == {
        "city": "12",
        "days": 3,
        "exact": True,
        "where": {"x": None},
    }


@pytest.mark.parametrize(
    ("name", "answer", "wanted"),
    [
        ("qwen3", "<think>why</think>so", ("why", "so")),
        ("qwen3", "why</think>so", ("why", "so")),
        ("qwen3", "only why", ("only why", "")),
        ("iquest_q1", "why</think>so", ("why", "so")),
        ("gigachat35", "why</think>so", ("why", "so")),
        ("dots", "<think>why</think>so", ("why", "so")),
        ("nanbeige", "why</think>so", ("why", "so")),
        ("deepseek_v3", "plain", ("", "plain")),
        ("kimi", "◁think▷why◁/think▷so", ("why", "so")),
        ("apertus2509", "<|inner_prefix|>why<|inner_suffix|>so", ("why", "so")),
        ("minimax_m3", "<mm:think>why</mm:think>so", ("why", "so")),
        ("deepseek_v3", "<think>why</think>so", ("why", "so")),
        ("mistral", "[THINK]why[/THINK]so", ("why", "so")),
        ("seed_oss", "<seed:think>why</seed:think>so", ("why", "so")),
        ("gemma4", "<|channel>thought\nwhy<channel|>so", ("why", "so")),
        (
            "granite",
            "Here is my thought process:why Here is my response:so",
            ("why ", "so"),
        ),
        (
            "hunyuan_a13b",
            "<think>\nwhy\n</think>\n<answer>\nso\n</answer>",
            ("why", "so"),
        ),
        (
            "openai_gptoss",
            "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
            "<|channel|>final<|message|>so",
            ("why", "so"),
        ),
        ("kimi_k3", "why<|close|>think<|sep|><|open|>response<|sep|>so", ("why", "so")),
    ],
)
def test_reasoning(name: str, answer: str, wanted: tuple[str, str]) -> None:
    """Reasoning and content, by token and by letters in any pieces."""
    format = format_of(name, None)
    for parsed in (
        parse(format, [answer]),
        parse(format, cut(answer, 1), tokens=False),
        parse(format, cut(answer, 5), tokens=False),
    ):
        assert (parsed.reasoning, parsed.content) == wanted


@pytest.mark.parametrize(
    ("prompt", "variables", "wanted"),
    [
        ("<think>\n", {}, ("so", "")),
        ("<think>\n\n</think>\n\n", {}, ("", "so")),
        ("\n", {"enable_thinking": False}, ("", "so")),
        (None, {}, ("so", "")),
    ],
)
def test_what_the_prompt_has_begun(
    prompt: str | None, variables: dict[str, object], wanted: tuple[str, str]
) -> None:
    """An answer goes on where its prompt ends."""
    format = format_of("qwen3", None)
    parsed = parse(format, ["so"], prompt=prompt, variables=variables)
    assert (parsed.reasoning, parsed.content) == wanted


def test_a_call_ends_the_reasoning() -> None:
    """One that begins inside of it is a call all the same."""
    answer = f"why{CALLS['hermes']}"
    parsed = parse(format_of("qwen3", "hermes"), [answer])
    assert (parsed.reasoning, parsed.content) == ("why", "")
    assert len(parsed.calls) == 1


@pytest.mark.parametrize("name", sorted(CALLS.keys() - BARE - WHOLE - TO_THE_END))
def test_a_call_that_is_cut_after_a_whole_one(name: str) -> None:
    """It is left out: the answer has its calls, and no half of one beside them."""
    whole = CALLS[name]
    begun = whole[: whole.index("get_weather") + 11]
    format = format_of(None, name)
    for size in (1, 5, 10_000):
        parsed = parse(format, cut(f"{whole}\n{begun}", size), tokens=False)
        assert [called for called, _ in parsed.calls] == ["get_weather"]
        assert "get_weather" not in parsed.content


def test_a_word_that_reads_like_a_tag() -> None:
    """Where delimiters are no tokens, text after a call may speak of them."""
    text = " and <tool_call> is its tag"
    parsed = parse(format_of(None, "hermes"), [CALLS["hermes"] + text], tokens=False)
    assert parsed.content == text
