"""How many ids of an answer are reasoning."""

import pytest

from render import Renderer
from render.derender import Parsers

THINK, END_THINK, TEXT = 151667, 151668, 9707


@pytest.mark.parametrize(
    ("ids", "count"),
    [
        ([THINK, TEXT, TEXT, END_THINK, TEXT], 2),
        ([TEXT, TEXT, END_THINK, TEXT, TEXT, TEXT], 2),
        ([END_THINK, TEXT], 0),
        ([THINK, END_THINK, TEXT], 0),
        ([TEXT, TEXT], 2),
    ],
)
def test_ids_between_the_delimiters_count(
    renderer: Renderer, ids: list[int], count: int
) -> None:
    """These do not; Qwen3's answers begin inside unless the prompt says otherwise."""
    request = {"messages": [{"role": "user", "content": "x"}]}
    message = renderer.derender_chat(
        ids, chat_request=request, prompt_ids=[TEXT], parsers=Parsers("qwen3")
    )
    assert message.reasoning_tokens == count


def test_without_a_parser_there_is_none(renderer: Renderer) -> None:
    """As nothing is told apart."""
    assert renderer.derender_chat([THINK, TEXT, END_THINK]).reasoning_tokens == 0
