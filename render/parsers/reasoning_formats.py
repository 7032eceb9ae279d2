"""How reasoning is written, by family."""

from collections.abc import Mapping

from render.parsers.call_shapes import plamo_tags
from render.parsers.reasoning import ReasoningFormat


def _think(
    *, inside: bool = False, through: bool = True, suffixed: bool = False
) -> ReasoningFormat:
    return ReasoningFormat(
        opens=("<think>",),
        closes=("</think>",),
        inside=inside,
        through=through,
        suffixed=suffixed,
    )


def _efforts(*names: str) -> ReasoningFormat:
    """Marks that say how much it thinks."""
    return ReasoningFormat(
        opens=tuple(f"<ifm|{name}>" for name in names),
        closes=tuple(f"</ifm|{name}>" for name in names),
        inside=True,
        through=True,
    )


REASONING_FORMATS: Mapping[str, ReasoningFormat] = {
    "deepseek_r1": _think(inside=True),
    "deepseek_v3": _think(),
    "qwen3": _think(inside=True),
    "glm45": _think(),
    "kimi": ReasoningFormat(
        opens=("◁think▷", "<think>"), closes=("◁/think▷", "</think>")
    ),
    "kimi_k2": _think(inside=True),
    "apertus2509": ReasoningFormat(
        opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",), through=True
    ),
    "minimax_m2": _think(inside=True),
    "nemotron_v3": _think(inside=True),
    "ernie45": _think(inside=True),
    "granite_thinking_parser": _think(),
    "olmo3": _think(inside=True, through=False),
    "step3": _think(inside=True),
    "hy_v3": _think(suffixed=True),
    "hy_v4": _think(inside=True, suffixed=True),
    "k2_horizon": _efforts("think", "think_fast", "think_faster"),
    "minimax_m3": ReasoningFormat(
        opens=("<mm:think>",), closes=("</mm:think>",), through=True
    ),
    "plamo3": ReasoningFormat(
        opens=plamo_tags("think")[:1],
        closes=plamo_tags("think")[1:],
        inside=True,
        through=True,
    ),
    "seed_oss": ReasoningFormat(
        opens=("<seed:think>",), closes=("</seed:think>",), inside=True, through=True
    ),
    "mistral": ReasoningFormat(
        opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>")
    ),
    "gemma4": ReasoningFormat(
        opens=("<|channel>",), closes=("<channel|>",), label="thought\n", through=True
    ),
    "granite": ReasoningFormat(
        opens=("Here is my thought process:", "Here's my thought process:"),
        closes=("Here is my response:", "Here's my response:"),
    ),
    "hunyuan_a13b": ReasoningFormat(
        opens=("<think>\n", "<think>"),
        closes=("\n</think>\n<answer>\n", "</think>"),
        dropped=("\n</answer>",),
    ),
    "cohere_command3": ReasoningFormat(
        opens=("<|START_THINKING|>",),
        closes=("<|END_THINKING|>",),
        dropped=(
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
            "<|START_TEXT|>",
            "<|END_TEXT|>",
        ),
        through=True,
    ),
}
"""By the name that vLLM uses, or the first that does."""

REASONING_ALIASES: Mapping[str, str] = {
    "deepseek-r1": "deepseek_r1",
    "deepseek-v3": "deepseek_v3",
    "deepseek_v4": "deepseek_v3",
    "deepseek-v4": "deepseek_v3",
    "deepseek-v41": "deepseek_v3",
    "deepseek_v41": "deepseek_v3",
    "cohere_command4": "cohere_command3",
    "glm47": "glm45",
    "dots": "qwen3",
    "dots3": "qwen3",
    "gigachat35": "deepseek_r1",
    "holo2": "deepseek_v3",
    "interns1": "qwen3",
    "iquest_q1": "qwen3",
    "hunyuan": "hy_v3",
    "laguna": "deepseek_v3",
    "ling3": "qwen3",
    "mimo": "qwen3",
    "minicpmv": "qwen3",
    "minimax": "minimax_m2",
    "minimax_m2_append_think": "minimax_m2",
    "minimax-append-think": "minimax_m2",
    "minimax-m3": "minimax_m3",
    "muse": "muse_glimmer",
    "nanbeige": "qwen3",
    "nano-v3": "nemotron_v3",
    "nano_v3": "nemotron_v3",
    "nemotron_3": "nemotron_v3",
    "openai_gptoss": "gpt-oss",
    "poolside_v1": "deepseek_v3",
    "qwen3-thinking": "deepseek_r1",
    "step3p5": "deepseek_r1",
    "step5": "deepseek_r1",
}
"""Other names of the same."""
