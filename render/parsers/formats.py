"""The formats of reasoning and calls by the names of their parsers.

Names are those of vLLM, SGLang and TensorRT-LLM; one format may have several.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from render.parsers.bare_calls import JSON_CALL, PYTHON_CALL
from render.parsers.call_formats import CALL_FORMATS, TOOL_ALIASES
from render.parsers.calls import CallFormat
from render.parsers.channels import DELIMITERS as CHANNELS
from render.parsers.channels import ChannelParser
from render.parsers.elements import DELIMITERS as ELEMENTS
from render.parsers.elements import ElementParser
from render.parsers.events import Event
from render.parsers.marks import Marks
from render.parsers.reasoning import ReasoningFormat
from render.parsers.reasoning_formats import REASONING_ALIASES, REASONING_FORMATS

WHOLE = ("gpt-oss", "kimi_k3")  # formats of reasoning and calls in one
BARE: Mapping[str, re.Pattern[str]] = {
    "llama3_json": JSON_CALL,
    "pythonic": PYTHON_CALL,
    "llama4_pythonic": PYTHON_CALL,
    "olmo3": PYTHON_CALL,
}


class Stage(Protocol):
    """A step that turns marked text into events."""

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with this text."""
        ...

    def end(self) -> list[Event]:
        """What was kept back, at the end of the answer."""
        ...


Whole = Callable[[Marks, str | None, Mapping[str, object]], Stage]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of parser names stands for.

    `whole` parses answers whose reasoning and calls are one format, `bare` says how an
    answer begins that is nothing but calls.
    """

    calls: CallFormat | None = None
    bare: re.Pattern[str] | None = None
    reasoning: ReasoningFormat | None = None
    whole: Whole | None = None
    delimiters: tuple[str, ...] = ()


def find_format(reasoning: str | None, tools: str | None) -> Format | None:
    """The format of these parsers; None if there is neither.

    Raises KeyError for a name that is not known.
    """
    if reasoning is None and tools is None:
        return None
    tool_name = TOOL_ALIASES.get(tools, tools) if tools else None
    name = REASONING_ALIASES.get(reasoning, reasoning) if reasoning else None
    if "gpt-oss" in (tool_name, name):
        return Format(whole=_channels, delimiters=CHANNELS)
    if "kimi_k3" in (tool_name, name):
        return Format(whole=_elements, delimiters=ELEMENTS)
    calls = CALL_FORMATS[tool_name] if tool_name else None
    thinking = REASONING_FORMATS[name] if name else None
    return Format(
        calls=calls,
        bare=BARE.get(tool_name or ""),
        reasoning=thinking,
        delimiters=(
            *(calls.delimiters if calls else ()),
            *(thinking.delimiters if thinking else ()),
        ),
    )


def tool_parsers() -> frozenset[str]:
    """Every name of a tool-call parser."""
    return frozenset({*CALL_FORMATS, *TOOL_ALIASES, *WHOLE})


def reasoning_parsers() -> frozenset[str]:
    """Every name of a reasoning parser."""
    return frozenset({*REASONING_FORMATS, *REASONING_ALIASES, *WHOLE})


def _channels(
    marks: Marks, prompt: str | None, variables: Mapping[str, object]
) -> Stage:
    return ChannelParser(marks)


def _elements(
    marks: Marks, prompt: str | None, variables: Mapping[str, object]
) -> Stage:
    opened = re.findall(f"{marks.of('<|open|>')}(\\w+)", prompt or "")
    known = [name for name in opened if name in ("think", "response")]
    return ElementParser(marks, inside=known[-1] if known else "think")
