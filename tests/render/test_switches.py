"""What newer releases of transformers do to messages."""

from pathlib import Path
from typing import Any

import pytest

from render import ModelNotFound, Renderer
from render.switches import SWITCHES, switched
from render.template import ChatTemplate, chat_environment
from tests.render import models

ANSWER = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
SHOWN = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"


@pytest.mark.parametrize(
    ("switches", "message", "wanted"),
    [
        ((), {**ANSWER, "reasoning": "r"}, {**ANSWER, "reasoning": "r"}),
        (("drop_none",), ANSWER, {"role": "assistant", "tool_calls": [{"id": "c"}]}),
        (
            ("alias_reasoning",),
            {"role": "assistant", "reasoning": "r"},
            {
                "thinking": "r",
                "role": "assistant",
                "reasoning": "r",
                "reasoning_content": "r",
            },
        ),
        (("alias_reasoning",), ANSWER, ANSWER),
    ],
)
def test_switched(
    switches: tuple[str, ...], message: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Each switch does its one thing."""
    assert switched([message], switches) == [wanted]
    assert list(switched([message], switches)[0]) == list(wanted)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": None},
        {"role": "assistant", "content": "a", "reasoning": "r"},
        {"role": "assistant", "content": "a", "thinking": "t", "reasoning": "r"},
        {"role": "assistant", "content": "a", "reasoning_content": "c", "name": None},
        {"role": "user", "content": "a"},
    ],
)
def test_as_the_installed_transformers(message: dict[str, Any]) -> None:
    """With all switches on, messages are those of the installed release (5.24)."""
    import transformers  # of all tests only a few need it, and it takes long

    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=models.byte_level())
    theirs = tokenizer.apply_chat_template(
        [message], chat_template=SHOWN, tokenize=False
    )
    template = ChatTemplate(SHOWN, chat_environment())
    assert template.render({"messages": switched([message], SWITCHES)}) == theirs


def test_loaded_with_a_switch(tmp_path: Path) -> None:
    """The switches of a worker's release are given at load; unknown ones are named."""
    template = "{% for m in messages %}{{ m.thinking }}{% endfor %}"
    path = models.save(
        tmp_path, models.byte_level(), tokenizer_config={"chat_template": template}
    )
    body = {"messages": [{"role": "assistant", "content": "a", "reasoning": "deep"}]}
    plain = Renderer.load(path, encoder="tokenizers")
    newer = Renderer.load(path, encoder="tokenizers", switches=["alias_reasoning"])
    assert plain.render_chat(body).text == ""
    assert newer.render_chat(body).text == "deep"
    with pytest.raises(ModelNotFound, match="no switch 'x'"):
        Renderer.load(path, switches=["x"])
