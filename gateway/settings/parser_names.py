"""The names of reasoning and tool parsers: those that there is a format for.

An engine's own spelling is taken whatever the profile: fleets are described by copying
the workers' options. What a name stands for is in `render/parsers/`.
"""

from collections.abc import Collection

from render.parsers.formats import reasoning_parsers, tool_parsers

REASONING_PARSERS = reasoning_parsers()
TOOL_PARSERS = tool_parsers()


def reasoning_parser_name(text: str) -> str:
    """The name of a reasoning parser; ValueError."""
    return _known(text, REASONING_PARSERS, "reasoning")


def tool_parser_name(text: str) -> str:
    """The name of a tool-call parser; ValueError."""
    return _known(text, TOOL_PARSERS, "tool-call")


def _known(text: str, names: Collection[str], kind: str) -> str:
    name = text.strip()
    if name not in names:
        raise ValueError(
            f"is no {kind} parser that is known here: {', '.join(sorted(names))}"
        )
    return name
