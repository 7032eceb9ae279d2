"""The formats of reasoning and calls by the names of their parsers.

Names are those of vLLM, SGLang and TensorRT-LLM; one format may have several.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from render.parsers.bare_calls import JSON_CALL, PYTHON_CALL
from render.parsers.blocks import DELIMITERS as BLOCKS
from render.parsers.blocks import BlockParser
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
from render.parsers.recipients import DELIMITERS as RECIPIENTS
from render.parsers.recipients import RecipientParser
from render.parsers.values import Tools

SUFFIXED = re.compile(r"<(?:think|tool_calls?|arg_key|arg_value)(:[^\s<>]+)>")
"""A delimiter as some of Tencent's tokenizers have it."""
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


Whole = Callable[[Marks, Tools, str | None], Stage]
"""What parses an answer, by the marks, the tools and the prompt's marked end."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair of parser names stands for.

    `whole` parses answers whose reasoning and calls are one format, `bare` says how an
    answer begins that is nothing but calls. `suffixed` is whether a tokenizer may have
    the delimiters with something after their names.
    """

    calls: CallFormat | None = None
    bare: re.Pattern[str] | None = None
    reasoning: ReasoningFormat | None = None
    whole: Whole | None = None
    delimiters: tuple[str, ...] = ()
    suffixed: bool = False

    def marks(self, added_ids: Mapping[str, int]) -> Marks:
        """The marks of its delimiters with the tokenizer of these added tokens."""
        return Marks(self.delimiters, added_ids, self._spelled(added_ids))

    def _spelled(self, added_ids: Mapping[str, int]) -> dict[str, str]:
        """How a tokenizer spells delimiters: one suffix for all, `<think:6124c78e>`."""
        if not self.suffixed:
            return {}
        found = (SUFFIXED.fullmatch(text) for text in added_ids)
        suffix = next((match[1] for match in found if match is not None), "")
        return {text: f"{text[:-1]}{suffix}>" for text in self.delimiters}


def find_format(reasoning: str | None, tools: str | None) -> Format | None:
    """The format of these parsers; None if there is neither.

    Raises KeyError for a name that is not known.
    """
    if reasoning is None and tools is None:
        return None
    tool_name = TOOL_ALIASES.get(tools, tools) if tools else None
    name = REASONING_ALIASES.get(reasoning, reasoning) if reasoning else None
    for whole, (parses, delimiters) in WHOLE.items():
        if whole in (tool_name, name):
            return Format(whole=parses, delimiters=delimiters)
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
        suffixed=any(one is not None and one.suffixed for one in (calls, thinking)),
    )


def tool_parsers() -> frozenset[str]:
    """Every name of a tool-call parser."""
    return frozenset({*CALL_FORMATS, *TOOL_ALIASES, *WHOLE})


def reasoning_parsers() -> frozenset[str]:
    """Every name of a reasoning parser."""
    return frozenset({*REASONING_FORMATS, *REASONING_ALIASES, *WHOLE})


def _channels(marks: Marks, tools: Tools, prompt: str | None) -> Stage:
    return ChannelParser(marks)


def _elements(marks: Marks, tools: Tools, prompt: str | None) -> Stage:
    opened = re.findall(f"{marks.of('<|open|>')}(\\w+)", prompt or "")
    known = [name for name in opened if name in ("think", "response")]
    return ElementParser(marks, inside=known[-1] if known else "think")


def _blocks(marks: Marks, tools: Tools, prompt: str | None) -> Stage:
    return BlockParser(marks, prompt)


def _recipients(marks: Marks, tools: Tools, prompt: str | None) -> Stage:
    return RecipientParser(marks, tools)


WHOLE: Mapping[str, tuple[Whole, tuple[str, ...]]] = {
    "gpt-oss": (_channels, CHANNELS),
    "kimi_k3": (_elements, ELEMENTS),
    "inkling": (_blocks, BLOCKS),
    "muse_glimmer": (_recipients, RECIPIENTS),
}
"""Formats of reasoning and calls in one, with their delimiters."""
