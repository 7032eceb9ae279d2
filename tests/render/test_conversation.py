"""The text of a conversation; leaving its last message open."""

from typing import Any

import pytest

from render import Unrenderable
from render.conversation import Conversation
from render.template import ChatTemplate, chat_environment

LINES = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
TRIMMED = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
PARTS = (
    "{% for m in messages %}{% for p in m.content %}{{ p.text }}</>{% endfor %}"
    "{% endfor %}"
)


def _continued(source: str, content: Any) -> str:
    messages = [{"role": "assistant", "content": content}]
    text = Conversation(
        template=ChatTemplate(source, chat_environment()),
        messages=messages,
        tools=None,
        documents=None,
        add_generation_prompt=False,
        continue_final_message=True,
        variables={},
    ).text({})
    assert messages == [{"role": "assistant", "content": content}]
    return text


def test_cut_after_the_last_message() -> None:
    """Nothing follows the last message, and its spaces stay."""
    assert _continued(LINES, "One, ") == "<assistant>One, "
    assert _continued(LINES, "") == "<assistant>"


def test_a_template_that_trims() -> None:
    """Where the template trims the message the text ends without space."""
    assert _continued(TRIMMED, "One,  ") == "<assistant>One,"


def test_parts() -> None:
    """The last part with a text is the one to continue."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}]
    assert _continued(PARTS, parts) == "a</>b "


@pytest.mark.parametrize(
    ("source", "content"), [("{{ messages | length }}", "a"), (PARTS, [])]
)
def test_nothing_to_continue(source: str, content: Any) -> None:
    """A template that drops the message, or a message without text: an error."""
    with pytest.raises(Unrenderable) as caught:
        _continued(source, content)
    assert caught.value.reason == "template_error"


def test_special_tokens_are_variables() -> None:
    """Templates read the tokenizer's tokens; the request's variables win."""
    conversation = Conversation(
        template=ChatTemplate("{{ bos_token }}{{ eos_token }}", chat_environment()),
        messages=[],
        tools=None,
        documents=None,
        add_generation_prompt=True,
        continue_final_message=False,
        variables={"eos_token": "mine"},
    )
    assert conversation.text({"bos_token": "<s>", "eos_token": "</s>"}) == "<s>mine"
