"""The prompt before an answer."""

from render import Renderer
from render.derender import Parsers
from render.derender_prompt import LONGEST_TAIL, Prompt

TURN, THINK, TEXT = 151644, 151667, 9707


def test_it_is_read_once_for_all_choices(renderer: Renderer) -> None:
    """What follows the last turn, with marks; a long one is read from its end."""
    marks = renderer.derenderer(Parsers("qwen3")).marks
    assert marks is not None
    ids = [TEXT] * LONGEST_TAIL + [TURN, TEXT, THINK]
    prompt = Prompt(ids)
    tail = prompt.tail(renderer.vocabulary, marks)
    assert tail == "Hello" + marks.of("<think>")
    ids.clear()  # it is not looked at again
    assert prompt.tail(renderer.vocabulary, marks) == tail
    other = renderer.derenderer(Parsers("deepseek_r1")).marks
    assert other is not None
    assert prompt.tail(renderer.vocabulary, other) == ""


def test_one_that_is_not_known(renderer: Renderer) -> None:
    """Nothing is told by it."""
    marks = renderer.derenderer(Parsers("qwen3")).marks
    assert marks is not None
    assert Prompt(None).tail(renderer.vocabulary, marks) is None
    assert list(Prompt(None).seeds) == []
