"""How calls are written, by family: a table of delimiters, scans and readers."""

from collections.abc import Mapping

from render.parsers.call_shapes import (
    BAR,
    dsml,
    gemma,
    in_section,
    json_after,
    json_in,
    pairs,
    parameters,
    parameters_alone,
    plamo,
    python,
    rest,
    steps,
    typed_pairs,
)
from render.parsers.calls import CallFormat
from render.parsers.json_calls import read_named, read_sequence
from render.parsers.mistral_calls import MISTRAL
from render.parsers.nested_calls import MINIMAX_M3
from render.parsers.tagged_calls import read_deepseek, read_kimi


def _token(words: str) -> str:
    """A token of DeepSeek: its words are joined as SentencePiece joins them."""
    joined = words.replace(" ", "\N{LOWER ONE EIGHTH BLOCK}")
    return f"<{BAR}{joined}{BAR}>"


DEEPSEEK_SECTION = (_token("tool calls begin"), _token("tool calls end"))
DEEPSEEK_CALL = (_token("tool call begin"), _token("tool call end"))
DEEPSEEK_SEPARATOR = _token("tool sep")
DEEPSEEK = in_section(
    DEEPSEEK_SECTION,
    DEEPSEEK_CALL,
    DEEPSEEK_SEPARATOR,
    read_deepseek(DEEPSEEK_SEPARATOR),
)
KIMI_SEPARATOR = "<|tool_call_argument_begin|>"

CALL_FORMATS: Mapping[str, CallFormat] = {
    "hermes": json_in("<tool_call>", "</tool_call>"),
    "longcat": json_in("<longcat_tool_call>", "</longcat_tool_call>"),
    "jamba": json_in("<tool_calls>", "</tool_calls>"),
    "apertus": json_in("<|tools_prefix|>", "<|tools_suffix|>", read_named),
    "internlm": json_in("<|action_start|><|plugin|>", "<|action_end|>"),
    "cohere_command3": json_in("<|START_ACTION|>", "<|END_ACTION|>"),
    "granite": json_after("<|tool_call|>", "<tool_call>"),
    "granite-20b-fc": json_after("<function_call>"),
    "phi4_mini_json": json_after("functools"),
    "gigachat3": json_after("function call<|role_sep|>\n", "<|function_call|>"),
    "qwen3_coder": parameters(
        ("<tool_call>", "</tool_call>"),
        ("<function=", "</function>"),
        ("<parameter=", "</parameter>"),
    ),
    "seed_oss": parameters(
        ("<seed:tool_call>", "</seed:tool_call>"),
        ("<function=", "</function>"),
        ("<parameter=", "</parameter>"),
    ),
    "minimax_m2": parameters(
        ("<minimax:tool_call>", "</minimax:tool_call>"),
        ("<invoke name=", "</invoke>"),
        ("<parameter name=", "</parameter>"),
        inline=True,
    ),
    "dots": parameters(
        ("<dots_function_call>", "</dots_function_call>"),
        ("<invoke name=", "</invoke>"),
        ("<parameter name=", "</parameter>"),
        inline=True,
    ),
    "glm45": pairs(),
    "hy_v3": pairs(("<tool_calls>", "</tool_calls>"), "<tool_sep>", suffixed=True),
    "hy_v4": pairs(("<tool_calls>", "</tool_calls>"), suffixed=True),
    "k2_horizon": typed_pairs("ifm|"),
    "minicpm5": parameters_alone(
        ("<function name=", "</function>"), ("<param name=", "</param>")
    ),
    "minimax_m3": MINIMAX_M3,
    "plamo3": plamo(),
    "step3": steps(),
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls", spellings=("toolcalls", "tool")),
    "deepseek_v41": dsml("calls", space=" "),
    "gigachat35": dsml("tool_calls", words="GCML"),
    "iquest_q1": pairs(call=("<iquest_tool_call>", "</iquest_tool_call>")),
    "kimi_k2": in_section(
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_begin|>", "<|tool_call_end|>"),
        KIMI_SEPARATOR,
        read_kimi(KIMI_SEPARATOR),
    ),
    "llama3_json": rest("<|python_tag|>", read_sequence),
    "pythonic": python("<|python_start|>", "<|python_end|>"),
    "lfm2": python("<|tool_call_start|>", "<|tool_call_end|>"),
    "olmo3": python("<function_calls>", "</function_calls>"),
    "mistral": MISTRAL,
    "gemma4": gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": gemma("<start_function_call>", "<end_function_call>", "<escape>"),
}
"""By the name that vLLM uses, or the first that does."""

TOOL_ALIASES: Mapping[str, str] = {
    "apertus2509": "apertus",
    "cohere_command4": "cohere_command3",
    "deepseek_v31": "deepseek_v3",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v3",
    "deepseekv32": "deepseek_v32",
    "deepseekv4": "deepseek_v4",
    "deepseekv41": "deepseek_v41",
    "ernie45": "hermes",
    "glm": "glm45",
    "glm47": "glm45",
    "granite4": "hermes",
    "hunyuan": "hy_v3",
    "hunyuan_a13b": "jamba",
    "interns1": "internlm",
    "laguna": "glm45",
    "ling3": "glm45",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "mimo": "qwen3_coder",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3",
    "muse": "muse_glimmer",
    "nanbeige": "qwen3_coder",
    "openai": "gpt-oss",
    "poolside_v1": "glm45",
    "qwen": "hermes",
    "qwen25": "hermes",
    "qwen3": "hermes",
    "qwen3_json": "hermes",
    "qwen3_xml": "qwen3_coder",
    "spark25": "glm45",
    "step3p5": "qwen3_coder",
    "trinity": "hermes",
    "xlam": "hermes",
}
"""Other names of the same."""
