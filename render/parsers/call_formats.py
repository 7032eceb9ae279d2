"""How calls are written, by family: a table of delimiters, scans and readers."""

from collections.abc import Mapping

from render.parsers.calls import CallFormat, Read
from render.parsers.gemma_calls import read_gemma
from render.parsers.json_calls import read_json, read_named, read_sequence
from render.parsers.marks import Marks
from render.parsers.mistral_calls import MISTRAL
from render.parsers.python_calls import read_python
from render.parsers.scans import FollowedScan, JsonScan, MarkScan, RestScan, Scan
from render.parsers.tagged_calls import (
    read_deepseek,
    read_dsml,
    read_kimi,
    read_pairs,
    read_parameters,
)

BAR = "\N{FULLWIDTH VERTICAL LINE}"  # in the names of DeepSeek's tokens


def _token(words: str) -> str:
    """A token of DeepSeek: its words are joined as SentencePiece joins them."""
    joined = words.replace(" ", "\N{LOWER ONE EIGHTH BLOCK}")
    return f"<{BAR}{joined}{BAR}>"


def _json(opening: str, closing: str, read: Read = read_json) -> CallFormat:
    """JSON between two tags."""

    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(closing))

    return CallFormat(opens=(opening,), closes=(closing,), scan=scan, read=read)


def _json_value(*openings: str, read: Read = read_json) -> CallFormat:
    """JSON after a tag; it ends itself."""

    def scan(marks: Marks) -> Scan:
        return JsonScan("".join(map(marks.of, openings)), value=True)

    return CallFormat(opens=openings, scan=scan, read=read)


def _parameters(
    section: tuple[str, str],
    call: tuple[str, str],
    parameter: tuple[str, str],
    *,
    inline: bool = False,
) -> CallFormat:
    """Named parameters in tags of their own, in calls, in a section."""

    def scan(marks: Marks) -> Scan:
        return FollowedScan(marks.of(call[1]), marks.of(section[1]) + marks.of(call[0]))

    return CallFormat(
        section=section,
        opens=(call[0],),
        others=(call[1], *parameter),
        scan=scan,
        read=read_parameters(*parameter, (call[1],), inline=inline),
    )


def _dsml(name: str, *, space: str = "", spellings: tuple[str, ...] = ()) -> CallFormat:
    """DeepSeek's tags; `name` is what the section is called."""
    tag = f"{BAR}DSML{BAR}{space}"
    end, short, opening = f"</{tag}invoke>", '"/>', f'<{tag}invoke name="'
    section = (f"<{tag}{name}>", f"</{tag}{name}>")
    parameter = (f"<{tag}parameter", f"</{tag}parameter>")

    def scan(marks: Marks) -> Scan:
        return FollowedScan(
            marks.of(end) + marks.of(short), marks.of(section[1]) + marks.of(opening)
        )

    return CallFormat(
        section=section,
        sections=tuple(f"<{tag}{one}>" for one in spellings),
        opens=(opening,),
        others=(end, short, *parameter),
        scan=scan,
        read=read_dsml(*parameter, end, short),
    )


def _in_section(
    section: tuple[str, str], call: tuple[str, str], separator: str, read: Read
) -> CallFormat:
    """Calls between tokens, with a token between name and JSON."""

    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(call[1]))

    return CallFormat(
        section=section,
        opens=(call[0],),
        closes=(call[1],),
        others=(separator,),
        scan=scan,
        read=read,
    )


def _pairs(
    section: tuple[str, str] | None = None, separator: str | None = None
) -> CallFormat:
    """Pairs of keys and values after a name."""
    key, value = ("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")

    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of("</tool_call>"), "".join(map(marks.of, value)))

    return CallFormat(
        section=section,
        opens=("<tool_call>",),
        closes=("</tool_call>",),
        others=(*key, *value, *([separator] if separator else [])),
        scan=scan,
        read=read_pairs(key, value, separator),
    )


def _gemma(opening: str, closing: str, quote: str) -> CallFormat:
    def scan(marks: Marks) -> Scan:
        return MarkScan(marks.of(closing), marks.of(quote) * 2)

    return CallFormat(
        opens=(opening,),
        closes=(closing,),
        others=(quote,),
        scan=scan,
        read=read_gemma(quote),
    )


def _python(opening: str, closing: str) -> CallFormat:
    def scan(marks: Marks) -> Scan:
        return JsonScan(marks.of(closing), quotes="\"'")

    return CallFormat(opens=(opening,), closes=(closing,), scan=scan, read=read_python)


def _rest(opening: str, read: Read) -> CallFormat:
    def scan(marks: Marks) -> Scan:
        return RestScan(marks.of(opening))

    return CallFormat(opens=(opening,), scan=scan, read=read)


DEEPSEEK_SECTION = (_token("tool calls begin"), _token("tool calls end"))
DEEPSEEK_CALL = (_token("tool call begin"), _token("tool call end"))
DEEPSEEK_SEPARATOR = _token("tool sep")
DEEPSEEK = _in_section(
    DEEPSEEK_SECTION,
    DEEPSEEK_CALL,
    DEEPSEEK_SEPARATOR,
    read_deepseek(DEEPSEEK_SEPARATOR),
)
KIMI_SEPARATOR = "<|tool_call_argument_begin|>"

CALL_FORMATS: Mapping[str, CallFormat] = {
    "hermes": _json("<tool_call>", "</tool_call>"),
    "longcat": _json("<longcat_tool_call>", "</longcat_tool_call>"),
    "jamba": _json("<tool_calls>", "</tool_calls>"),
    "apertus": _json("<|tools_prefix|>", "<|tools_suffix|>", read_named),
    "internlm": _json("<|action_start|><|plugin|>", "<|action_end|>"),
    "cohere_command3": _json("<|START_ACTION|>", "<|END_ACTION|>"),
    "granite": _json_value("<|tool_call|>", "<tool_call>"),
    "granite-20b-fc": _json_value("<function_call>"),
    "phi4_mini_json": _json_value("functools"),
    "gigachat3": _json_value("function call<|role_sep|>\n", "<|function_call|>"),
    "qwen3_coder": _parameters(
        ("<tool_call>", "</tool_call>"),
        ("<function=", "</function>"),
        ("<parameter=", "</parameter>"),
    ),
    "seed_oss": _parameters(
        ("<seed:tool_call>", "</seed:tool_call>"),
        ("<function=", "</function>"),
        ("<parameter=", "</parameter>"),
    ),
    "minimax_m2": _parameters(
        ("<minimax:tool_call>", "</minimax:tool_call>"),
        ("<invoke name=", "</invoke>"),
        ("<parameter name=", "</parameter>"),
        inline=True,
    ),
    "dots": _parameters(
        ("<dots_function_call>", "</dots_function_call>"),
        ("<invoke name=", "</invoke>"),
        ("<parameter name=", "</parameter>"),
        inline=True,
    ),
    "glm45": _pairs(),
    "hy_v3": _pairs(("<tool_calls>", "</tool_calls>"), "<tool_sep>"),
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls", spellings=("toolcalls", "tool")),
    "deepseek_v41": _dsml("calls", space=" "),
    "kimi_k2": _in_section(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_begin|>", "<|tool_call_end|>"),
        KIMI_SEPARATOR,
        read_kimi(KIMI_SEPARATOR),
    ),
    "llama3_json": _rest("<|python_tag|>", read_sequence),
    "pythonic": _python("<|python_start|>", "<|python_end|>"),
    "lfm2": _python("<|tool_call_start|>", "<|tool_call_end|>"),
    "olmo3": _python("<function_calls>", "</function_calls>"),
    "mistral": MISTRAL,
    "gemma4": _gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
}
"""By the name that vLLM uses, or the first that does."""

TOOL_ALIASES: Mapping[str, str] = {
    "cohere_command4": "cohere_command3",
    "deepseek_v31": "deepseek_v3",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v3",
    "deepseekv32": "deepseek_v32",
    "ernie45": "hermes",
    "glm": "glm45",
    "glm47": "glm45",
    "granite4": "hermes",
    "hunyuan_a13b": "jamba",
    "interns1": "internlm",
    "laguna": "glm45",
    "ling3": "glm45",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "mimo": "qwen3_coder",
    "minimax-m2": "minimax_m2",
    "openai": "gpt-oss",
    "poolside_v1": "glm45",
    "qwen": "hermes",
    "qwen25": "hermes",
    "qwen3": "hermes",
    "qwen3_json": "hermes",
    "qwen3_xml": "qwen3_coder",
    "step3p5": "qwen3_coder",
    "xlam": "hermes",
}
"""Other names of the same."""
