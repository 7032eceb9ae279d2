"""A call, an answer and a broken call in the words of each family."""

import json

import pytest

from tests.render.parsers.answers import cut, format_of, parse

PARIS = {"city": "Paris"}
JSON = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
BAR, LOW = "\N{FULLWIDTH VERTICAL LINE}", "\N{LOWER ONE EIGHTH BLOCK}"
M3 = "]<]minimax[>["
DSML = f"{BAR}DSML{BAR}"


def deepseek(words: str) -> str:
    """A token of DeepSeek."""
    return f"<{BAR}{words.replace(' ', LOW)}{BAR}>"


CALLS = {
    "hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "qwen25": f"<tool_call>\n{JSON}\n</tool_call>",
    "longcat": f"<longcat_tool_call>{JSON}</longcat_tool_call>",
    "jamba": f"<tool_calls>[{JSON}]</tool_calls>",
    "internlm": f"<|action_start|><|plugin|>{JSON}<|action_end|>",
    "apertus": '<|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>',
    "cohere_command3": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": '
    '"get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>',
    "granite": f"<|tool_call|>[{JSON}]",
    "granite-20b-fc": f"<function_call> {JSON}",
    "phi4_mini_json": f"functools[{JSON}]",
    "gigachat3": f"function call<|role_sep|>\n{JSON}",
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
    "</parameter>\n</function>\n</tool_call>",
    "seed_oss": "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris"
    "</parameter>\n</function>\n</seed:tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>',
    "dots": '<dots_function_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n</invoke>\n</dots_function_call>',
    "hy_v3": "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n</tool_call>\n</tool_calls>",
    "glm45": "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n</tool_call>",
    "glm47": "<tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Paris</arg_value></tool_call>",
    "deepseek_v3": deepseek("tool calls begin")
    + deepseek("tool call begin")
    + "function"
    + deepseek("tool sep")
    + 'get_weather\n```json\n{"city": "Paris"}\n```'
    + deepseek("tool call end")
    + deepseek("tool calls end"),
    "deepseek_v31": deepseek("tool calls begin")
    + deepseek("tool call begin")
    + "get_weather"
    + deepseek("tool sep")
    + '{"city": "Paris"}'
    + deepseek("tool call end")
    + deepseek("tool calls end"),
    "deepseek_v32": f'<{DSML}function_calls>\n<{DSML}invoke name="get_weather">\n'
    f'<{DSML}parameter name="city" string="true">Paris</{DSML}parameter>\n'
    f"</{DSML}invoke>\n</{DSML}function_calls>",
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
    '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
    '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "llama3_json": '{"name": "get_weather", "parameters": {"city": "Paris"}}',
    "llama4_json": f"<|python_tag|>{JSON}",
    "pythonic": '[get_weather(city="Paris")]',
    "llama4_pythonic": '<|python_start|>[get_weather(city="Paris")]<|python_end|>',
    "lfm2": '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>',
    "olmo3": '<function_calls>get_weather(city="Paris")</function_calls>',
    "mistral": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    "gemma4": '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    "functiongemma": "<start_function_call>call:get_weather{city:<escape>Paris"
    "<escape>}<end_function_call>",
    "gigachat35": f"<{BAR}GCML{BAR}tool_calls>\n<{BAR}GCML{BAR}invoke "
    f'name="get_weather">\n<{BAR}GCML{BAR}parameter name="city" string="true">Paris'
    f"</{BAR}GCML{BAR}parameter>\n</{BAR}GCML{BAR}invoke>\n"
    f"</{BAR}GCML{BAR}tool_calls>",
    "iquest_q1": "<iquest_tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Paris</arg_value></iquest_tool_call>",
    "hy_v4": "<tool_calls>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Paris</arg_value>\n</tool_call>\n</tool_calls>",
    "k2_horizon": "<ifm|tool_calls>\n<ifm|tool_call>get_weather\n"
    "<ifm|arg_key>city</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
    "<ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call>\n</ifm|tool_calls>",
    "minicpm5": '<function name="get_weather"><param name="city">'
    "<![CDATA[Paris]]></param></function>",
    "minimax_m3": f'{M3}<tool_call>\n{M3}<invoke name="get_weather">\n'
    f"{M3}<city>Paris{M3}</city>\n{M3}</invoke>\n{M3}</tool_call>",
    "plamo3": "".join(
        f"<|plamo:{words}:plamo|>{text}"
        for words, text in {
            "begin_tool_requests": "",
            "begin_tool_request": "",
            "begin_tool_name": "get_weather",
            "end_tool_name": "",
            "begin_tool_arguments": "<|plamo:constrain|>json<|plamo:msg|>"
            '{"city": "Paris"}',
            "end_tool_arguments": "",
            "end_tool_request": "",
            "end_tool_requests": "",
        }.items()
    ),
    "step3": f"<{BAR}tool_calls_begin{BAR}>\n<{BAR}tool_call_begin{BAR}>function"
    f'<{BAR}tool_sep{BAR}><steptml:invoke name="get_weather">\n'
    '<steptml:parameter name="city">Paris</steptml:parameter>\n</steptml:invoke>'
    f"<{BAR}tool_call_end{BAR}>\n<{BAR}tool_calls_end{BAR}>",
    "inkling": '<|message_model|>get_weather<|content_invoke_tool_json|>{"name": '
    '"get_weather", "args": {"city": "Paris"}}<|end_message|>',
    "muse_glimmer": " to=get_weather.get_weather<|message|>\n<atem:function_calls>\n"
    '<atem:invoke name="get_weather.get_weather">\n<atem:parameter name="city">Paris'
    "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>",
    "openai": "<|channel|>commentary to=functions.get_weather <|constrain|>json"
    '<|message|>{"city": "Paris"}<|call|>',
}
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
