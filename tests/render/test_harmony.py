"""Chats with gpt-oss: the ids of vLLM, and those of the library openai-harmony."""

import copy
import json
import logging
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import openai_harmony as library
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvindex.blocks import unpack_ids
from render import Renderer, Unrenderable
from render.encoding import prompt_ids
from render.harmony import MAX_CUTS, Harmony, Turn
from render.harmony_library import BASE, INSTALL, _encoding
from tests.render import gpt_oss, models
from tests.render.services import refusal, service

USER = {"role": "user", "content": "hi"}

# Loading the real vocabulary takes long on a busy machine.
pytestmark = pytest.mark.timeout(240)

TEXTS = st.lists(
    st.one_of(
        st.sampled_from([*gpt_oss.SPECIAL.values(), "<|", "|>", " to=", "it's ", "\n"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    ),
    max_size=5,
).map("".join)
TURNS = st.builds(
    Turn,
    author=st.sampled_from(["user", "assistant", "developer", "functions.f", "x y"]),
    texts=st.lists(TEXTS, min_size=1, max_size=3).map(tuple),
    channel=st.none() | st.sampled_from(["analysis", "commentary", "final"]) | TEXTS,
    recipient=st.none() | st.sampled_from(["assistant", "functions.f"]) | TEXTS,
    content_type=st.sampled_from(["", "json", "<|constrain|>json"]),
)


def _message(turn: Turn) -> Any:
    roles = {role.value for role in library.Role}
    author = (
        library.Author(role=library.Role(turn.author))
        if turn.author in roles
        else library.Author.new(library.Role.TOOL, turn.author)
    )
    contents = [library.TextContent(text=text) for text in turn.texts]
    message = library.Message(author=author, content=contents)
    message.channel = turn.channel
    message.recipient = turn.recipient or None
    message.content_type = turn.content_type or None
    return message


@pytest.fixture(scope="module")
def encoding(oss: Renderer) -> Any:
    """The library's own encoding."""
    return _encoding(library, oss._encoder.vocabulary())


@settings(max_examples=150, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=4))
def test_turns_are_written_as_the_library_does(
    oss: Renderer, encoding: Any, turns: list[Turn]
) -> None:
    """Any turns, special tokens in their texts included: the same ids."""
    harmony = oss._harmony
    assert isinstance(harmony, Harmony)
    ends = [turn.author == "assistant" and bool(turn.recipient) for turn in turns]
    prompt = harmony.prompt(
        Turn(**{f: getattr(turn, f) for f in turn.__struct_fields__} | {"is_call": end})
        for turn, end in zip(turns, ends, strict=True)
    )
    expected = encoding.render_conversation_for_completion(
        library.Conversation.from_messages(map(_message, turns)),
        library.Role.ASSISTANT,
        library.RenderConversationConfig(auto_drop_analysis=False),
    )
    assert unpack_ids(prompt_ids(oss._encoder, prompt)) == expected


def test_an_endpoint(oss: Renderer) -> None:
    """A render endpoint answers with the prompt, never cut, or refuses it."""
    endpoint = service(oss)
    body = {"messages": [USER], "truncate_prompt_tokens": -1}
    answer = endpoint.chat(json.dumps(body).encode(), prompt_text=True)
    assert answer["token_ids"] == unpack_ids(oss.render_chat(body).token_ids)
    assert answer["prompt_text"].endswith("<|message|>hi<|end|><|start|>assistant")
    long = {"role": "user", "content": "hi " * 5000}
    assert refusal(endpoint, messages=[long], truncate_prompt_tokens=-1).status == 400
    assert refusal(endpoint, reasoning_effort="none").status == 400


def test_its_answers_are_always_parsed(oss: Renderer) -> None:
    """vLLM needs no parser named: tools are taken, and the reasoning counts as over."""
    tools = [{"type": "function", "function": {"name": "f", "description": "x"}}]
    body = json.dumps({"messages": [USER], "tools": tools}).encode()
    answer = service(oss).chat(body)
    assert answer["reasoning_ended"] is True
    kwargs = {"add_generation_prompt": True, "continue_final_message": False}
    told = {"cohere_format": "cmd4", **kwargs}
    assert answer["reasoning_parser_kwargs"] == {"chat_template_kwargs": told}
    assert service(oss.with_profile("trtllm")).chat(body)["reasoning_ended"] is None


def test_functions_that_are_not_described(oss: Renderer) -> None:
    """What the library takes too long for, or what its releases write differently."""
    for reason, parameters in (
        ("too_large", {"description": "的" * 5000}),
        ("too_large", {"description": "a b " * 100_000}),
        ("bad_field", {"properties": {"x": {"default": 1e20}}}),
        ("bad_field", {"properties": {"x": {"default": 10**30}}}),
        ("bad_field", [1]),
    ):
        function = {"name": "f", "parameters": parameters}
        body = {"messages": [USER], "tools": [{"function": function}]}
        with pytest.raises(Unrenderable) as caught:
            oss.render_chat(body)
        assert caught.value.reason == reason


def test_long_words_take_no_time(oss: Renderer) -> None:
    """The library would take a minute, and let no other thread run meanwhile."""
    start = time.process_time()
    for content in ("的" * 100_000, "😀" * 100_000, "ab" * 100_000, " " * 200_000):
        body = {"messages": [{"role": "user", "content": content}]}
        assert len(oss.render_chat(body)) > 100
    assert time.process_time() - start < 10


def test_too_many_special_tokens(oss: Renderer) -> None:
    """Text in which there are tens of thousands of them is not rendered."""
    content = "<|end|>" * (MAX_CUTS + 1)
    with pytest.raises(Unrenderable, match="too_large"):
        oss.render_chat({"messages": [{"role": "user", "content": content}]})


def test_sglang(oss: Renderer) -> None:
    """How SGLang renders gpt-oss is not known, so it is not claimed."""
    with pytest.raises(Unrenderable) as caught:
        oss.with_profile("sglang").render_chat({"messages": [USER]})
    assert caught.value.reason == "model_type"


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the extra."""
    monkeypatch.setitem(sys.modules, "openai_harmony", None)


def test_without_the_extra(
    tmp_path: Path, uninstalled: None, caplog: pytest.LogCaptureFixture
) -> None:
    """One message names it; texts are rendered, chats are not: 501 at an endpoint."""
    path = models.save(tmp_path, models.byte_level(), config={"model_type": "gpt_oss"})
    with caplog.at_level(logging.WARNING):
        renderer = Renderer.load(path)
        for _ in range(3):
            with pytest.raises(Unrenderable) as caught:
                renderer.render_chat({"messages": [USER]})
            assert caught.value.reason == "missing_extra"
    assert [INSTALL in message for message in caplog.messages] == [True]
    assert "pip install kv-gateway[harmony]" in INSTALL
    assert len(renderer.render_completion({"prompt": "hello"})[0]) > 0
    refused = refusal(service(renderer))
    assert (refused.status, str(refused)) == (501, INSTALL)


def test_another_vocabulary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The library is never asked for one that it would download."""
    path = models.save(tmp_path, models.byte_level(), config={"model_type": "gpt_oss"})
    renderer = Renderer.load(path)
    assert ["not that of gpt-oss" in message for message in caplog.messages] == [True]
    with pytest.raises(Unrenderable) as caught:
        renderer.render_chat({"messages": [USER]})
    assert caught.value.reason == "model_type"


def test_the_environment_is_left_alone(
    oss: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable the library is told its vocabulary by is as it was."""
    vocabulary = oss._encoder.vocabulary()
    monkeypatch.setenv(BASE, "mine")
    _encoding(library, vocabulary)
    assert os.environ[BASE] == "mine"
    monkeypatch.delenv(BASE)
    _encoding(library, vocabulary)
    assert BASE not in os.environ


def test_the_date_is_the_clocks(oss: Renderer) -> None:
    """A prompt has the day on which it is rendered, where it is rendered."""
    harmony = oss._harmony
    assert isinstance(harmony, Harmony)
    now = [datetime(2031, 1, 31, 23, 59, 59).timestamp()]
    other = copy.copy(harmony)
    other._clock = lambda: now[0]
    (before,) = other.system(effort="low", functions=False).texts
    now[0] += 1
    (after,) = other.system(effort="low", functions=False).texts
    assert "Current date: 2031-01-31\n" in before
    assert after == before.replace("2031-01-31", "2031-02-01")
