"""The names of reasoning and tool parsers that the engines know.

Only names, to catch a misspelt option at start; what a parser does is not here. An
engine's own spelling is taken whatever the profile: fleets are described by copying
the workers' options.
"""

_BOTH = """
    beam cohere_command3 cohere_command4 deepseek_v3 deepseek_v4 deepseek_v41 ernie45
    gemma4 glm45 glm47 gpt-oss granite hf hy_v3 hy_v4 inkling interns1 k2_horizon
    kimi_k2 kimi_k3 laguna ling3 mimo minimax_m2 minimax_m3 mistral muse muse_glimmer
    musespark1x olmo3 plamo3 poolside_v1 seed_oss step3 step3p5 step5
"""
_REASONING = """
    deepseek_r1 granite_thinking_parser holo2 hunyuan_a13b minicpmv
    minimax_m2_append_think nemotron_v3 openai_gptoss qwen3
    deepseek-r1 deepseek-v3 kimi minimax minimax-append-think nano-v3 nano_v3
    qwen3-thinking
"""
_TOOL = """
    apertus deepseek_v31 deepseek_v32 dots functiongemma gigachat3 granite-20b-fc
    granite4 hermes hunyuan_a13b internlm jamba lfm2 llama3_json llama4_json
    llama4_pythonic longcat minicpm5 openai phi4_mini_json pythonic qwen3_coder
    qwen3_json qwen3_xml xlam
    deepseekv3 deepseekv31 deepseekv32 glm llama3 minimax-m2 qwen qwen25 qwen3 trinity
"""

REASONING_PARSERS = frozenset((_BOTH + _REASONING).split())
TOOL_PARSERS = frozenset((_BOTH + _TOOL).split())


def reasoning_parser_name(text: str) -> str:
    """The name of a reasoning parser; ValueError."""
    return _known(text, REASONING_PARSERS, "reasoning")


def tool_parser_name(text: str) -> str:
    """The name of a tool-call parser; ValueError."""
    return _known(text, TOOL_PARSERS, "tool-call")


def _known(text: str, names: frozenset[str], kind: str) -> str:
    name = text.strip()
    if name not in names:
        raise ValueError(
            f"is no {kind} parser of vLLM, SGLang or TensorRT-LLM, such as "
            + ", ".join(sorted(names)[:40:8])
        )
    return name
