"""Names of parsers: what has a format is taken, misspellings are not."""

import re

import pytest

from gateway.settings.parser_names import (
    REASONING_PARSERS,
    TOOL_PARSERS,
    reasoning_parser_name,
    tool_parser_name,
)
from tests.documents import ROOT


def test_every_name_is_taken() -> None:
    """In every engine's spelling, space around it left out."""
    assert {reasoning_parser_name(name) for name in REASONING_PARSERS} == (
        REASONING_PARSERS
    )
    assert {tool_parser_name(f" {name} ") for name in TOOL_PARSERS} == TOOL_PARSERS
    assert {"qwen3", "deepseek_r1", "deepseek-r1", "minimax_m2"} <= REASONING_PARSERS
    assert {"hermes", "qwen3_coder", "qwen25", "openai", "mistral"} <= TOOL_PARSERS


@pytest.mark.parametrize("name", ["", " ", "Qwen3", "hermes2", "qwen3,hermes"])
def test_what_is_no_name(name: str) -> None:
    """Said with all names that there are."""
    with pytest.raises(ValueError, match=r"is no reasoning parser .*: .*qwen3, "):
        reasoning_parser_name(name)
    with pytest.raises(ValueError, match="is no tool-call parser"):
        tool_parser_name(name)


def test_the_page_names_what_there_is_not() -> None:
    """docs/derendering.md: each name that has no format is refused."""
    page = (ROOT / "docs" / "derendering.md").read_text()
    sentence = page.partition("There is none for")[2].partition(".")[0]
    named = re.findall(r"`(\w+)`", sentence)
    assert named == ["beam", "musespark1x", "step5", "hf"]
    assert not TOOL_PARSERS & {*named}
    assert not REASONING_PARSERS & {"beam", "musespark1x", "hf"}
