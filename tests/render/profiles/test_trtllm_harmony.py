"""What TensorRT-LLM makes of chats with gpt-oss, told from its adapter."""

from typing import Any

import pytest

from render import Renderer, Unrenderable

HEAD = (
    "You are ChatGPT, a large language model trained by OpenAI.\n"
    "Knowledge cutoff: 2024-06\nCurrent date: 2026-11-30\n\nReasoning: low\n\n# Valid"
    " channels: analysis, commentary, final. Channel must be included for every "
    "message."
)
USER = {"role": "user", "content": "hi"}
SAID = "<|start|>user<|message|>hi<|end|>"
FUNCTIONS = "\nCalls to these tools must go to the commentary channel: 'functions'."
DESCRIBED = (
    "# Tools\n\n## functions\n\nnamespace functions {\n\n// Adds.\ntype f = () => any;"
    "\n\n} // namespace functions"
)
# Loading the real vocabulary takes long on a busy machine.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def renderer(oss: Renderer) -> Renderer:
    """gpt-oss's renderer as TensorRT-LLM."""
    return oss.with_profile("trtllm")


def _text(renderer: Renderer, *messages: Any, **fields: Any) -> str:
    body = {"messages": list(messages), **fields}
    text = renderer.render_chat(body).text
    assert text is not None
    assert text.endswith("<|start|>assistant")
    return text.removesuffix("<|start|>assistant")


def _told(told: str, *, system: str = HEAD, developer: str = "") -> str:
    return (
        f"<|start|>system<|message|>{system}<|end|>"
        f"<|start|>developer<|message|>{developer}<|end|>{told}"
    )


def test_plain(renderer: Renderer) -> None:
    """Little reasoning, and a developer message with nothing in it."""
    assert _text(renderer, USER) == _told(SAID)
    high = HEAD.replace("low", "high")
    assert _text(renderer, USER, reasoning_effort="high") == _told(SAID, system=high)


def test_instructions(renderer: Renderer) -> None:
    """Systems are the identity, developers the instructions, wherever they are."""
    system = {"role": "system", "content": " Be nice. "}
    parts = [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]
    developer = {"role": "developer", "content": parts}
    text = _text(renderer, USER, system, developer, {**system, "content": ""}, system)
    identity = "Be nice.\nBe nice." + HEAD[HEAD.index("\n") :]
    instructions = "# Instructions\n\na\nb"
    assert text == _told(SAID, system=identity, developer=instructions)


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_functions(renderer: Renderer, choice: str) -> None:
    """They are described unless none may be called."""
    tool = {"type": "function", "function": {"name": "f", "description": "Adds."}}
    text = _text(renderer, USER, tools=[tool], tool_choice=choice)
    if choice == "none":
        assert text == _told(SAID)
    else:
        assert text == _told(SAID, system=HEAD + FUNCTIONS, developer=DESCRIBED)


def test_calls(renderer: Renderer) -> None:
    """Calls are constrained to JSON; an answer has the name of what was called."""
    function = {"name": "f", "arguments": '{"a": 1}'}
    call = {"id": "1", "type": "function", "function": function}
    text = _text(
        renderer,
        {"role": "assistant", "reasoning": "hm", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": " 2 "},
        {"role": "tool", "tool_call_id": "?", "content": ""},
    )
    assert text == _told(
        "<|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary "
        '<|constrain|>json<|message|>{"a": 1}<|call|>'
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>2<|end|>"
        "<|start|>functions.tool to=assistant<|channel|>commentary<|message|><|end|>"
    )


def test_a_preamble(renderer: Renderer) -> None:
    """What was said before a call is told in its channel again."""
    content = "<|channel|>commentary<|message|> Let me see. <|end|>Done."
    preamble = (
        "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Done.<|end|>"
    )
    message = {"role": "assistant", "content": content, "tool_calls": []}
    assert _text(renderer, message) == _told(preamble)


def test_reasoning_is_forgotten(renderer: Renderer) -> None:
    """Once there is an answer, and only if it is the last thing that was said."""
    thought = {"role": "assistant", "content": "", "reasoning_content": "hm"}
    answer = {"role": "assistant", "content": "yes"}
    final = "<|start|>assistant<|channel|>final<|message|>yes<|end|>"
    analysis = "<|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
    assert _text(renderer, thought) == _told(analysis)
    assert _text(renderer, thought, answer) == _told(final)
    told = analysis + final + analysis
    assert _text(renderer, thought, answer, thought) == _told(told)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": 1},
        {"role": "user", "content": [{"type": "text", "text": 1}]},
        {"role": "assistant", "content": "x", "reasoning": 1},
        {"role": "assistant", "tool_calls": [{"function": {"name": None}}]},
        {"role": "tool", "name": 1},
        "hi",
    ],
)
def test_no_messages(renderer: Renderer, message: Any) -> None:
    """Refused with a reason, whatever they are."""
    with pytest.raises(Unrenderable) as caught:
        renderer.render_chat({"messages": [message]})
    assert caught.value.reason == "bad_messages"
