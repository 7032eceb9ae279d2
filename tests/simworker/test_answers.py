"""Planned answers: deterministic, cut where the request says, text as tokenized."""

import json
from pathlib import Path

import pytest

from kvindex.blocks import unpack_ids
from render import Renderer
from simworker.answers import (
    Author,
    BadAnswers,
    FixedAnswer,
    Limits,
    last_text,
    read_answers,
)

PROMPT = [1, 2, 3]
EOS = 151645


def encode(renderer: Renderer, text: str) -> list[int]:
    """The ids of a text."""
    (rendered,) = renderer.render_completion({"prompt": text})
    return unpack_ids(rendered.token_ids)


def fixed(renderer: Renderer, output_ids: list[int]) -> Author:
    """An author that always says `output_ids`."""
    answer = FixedAnswer(output_ids=output_ids, prompt_ids=PROMPT)
    return Author(renderer, fixed=[answer])


def test_the_same_prompt_and_seed_say_the_same(renderer: Renderer) -> None:
    """Another author says the same; another prompt or seed something else."""
    limits = Limits(max_tokens=500)
    first = Author(renderer).write(PROMPT, limits, seed=7)
    again = Author(renderer).write(PROMPT, limits, seed=7)
    other = Author(renderer).write(PROMPT, limits, seed=8)
    third = Author(renderer).write([9], limits, seed=7)
    assert first == again
    assert len({tuple(a.token_ids) for a in (first, other, third)}) == 3


def test_natural_end(renderer: Renderer) -> None:
    """With room an answer ends with the end token, which has no text."""
    author = Author(renderer)
    answer = author.write(PROMPT, Limits(max_tokens=5000), seed=0)
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)
    assert answer.token_ids[-1] == EOS
    assert answer.pieces[-1] == ""
    # What the text tokenizes to is what came out: the next turn will hit its blocks.
    text = "".join(answer.pieces)
    assert encode(renderer, text) == answer.token_ids[:-1]
    assert text.endswith(".")


def test_max_tokens(renderer: Renderer) -> None:
    """Cut in mid-sentence; with `ignore_eos` always exactly so many tokens."""
    author = Author(renderer)
    short = author.write(PROMPT, Limits(max_tokens=5), seed=0)
    assert (len(short.token_ids), short.finish_reason) == (5, "length")
    limits = Limits(max_tokens=3000, ignore_eos=True)
    long = author.write(PROMPT, limits, seed=0)
    assert (len(long.token_ids), long.finish_reason) == (3000, "length")
    assert EOS not in long.token_ids


def test_fixed_ids(renderer: Renderer) -> None:
    """Ids of a file come out as they are, and end early only by the limits."""
    ids = encode(renderer, "All good here.")
    author = fixed(renderer, ids)
    whole = author.write(PROMPT, Limits(max_tokens=50), seed=0)
    assert (whole.token_ids, whole.finish_reason) == (ids, "stop")
    assert "".join(whole.pieces) == "All good here."
    exact = author.write(PROMPT, Limits(max_tokens=len(ids)), seed=0)
    assert (exact.token_ids, exact.finish_reason) == (ids, "length")
    cut = author.write(PROMPT, Limits(max_tokens=2), seed=0)
    assert (cut.token_ids, cut.finish_reason) == (ids[:2], "length")


def test_fixed_ids_stop_at_the_end_token(renderer: Renderer) -> None:
    """An end token in fixed ids ends the answer, unless it is to be ignored."""
    author = fixed(renderer, [100, EOS, 101])
    stopped = author.write(PROMPT, Limits(max_tokens=50), seed=0)
    assert (stopped.token_ids, stopped.finish_reason) == ([100, EOS], "stop")
    limits = Limits(max_tokens=50, ignore_eos=True)
    assert author.write(PROMPT, limits, seed=0).token_ids == [100, EOS, 101]


def test_characters_of_several_tokens(renderer: Renderer) -> None:
    """Text is held back inside a character; together the pieces are the whole."""
    text = "Grüße 👩‍👩‍👧 und 世界 🌍, ﷽ é!"
    ids = encode(renderer, text)
    answer = fixed(renderer, ids).write(PROMPT, Limits(max_tokens=99), seed=0)
    assert "".join(answer.pieces) == text
    assert "" in answer.pieces
    assert not any("\ufffd" in piece for piece in answer.pieces)


@pytest.mark.parametrize("include", [False, True])
def test_stop_string(renderer: Renderer, include: bool) -> None:
    """The text ends before (or behind) the first stop string; ids with its token."""
    ids = encode(renderer, "one two three four five")
    limits = Limits(max_tokens=99, stop=("zzz", "ee fo"), include_stop=include)
    answer = fixed(renderer, ids).write(PROMPT, limits, seed=0)
    expected = "one two thr" + ("ee fo" if include else "")
    assert "".join(answer.pieces) == expected
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "ee fo")
    assert answer.token_ids == ids[:4]


def test_stop_token(renderer: Renderer) -> None:
    """A stop token ends the answer, is counted, has no text, and is the reason."""
    ids = encode(renderer, "one two three")
    limits = Limits(max_tokens=99, stop_token_ids=(ids[1],))
    answer = fixed(renderer, ids).write(PROMPT, limits, seed=0)
    assert answer.token_ids == ids[:2]
    assert answer.pieces == ["one", ""]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", ids[1])


def test_which_line_answers(renderer: Renderer, tmp_path: Path) -> None:
    """Prompt ids, whole messages or a part of the last one choose the line."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "say blue"}]}]
    path = tmp_path / "answers.jsonl"
    lines: list[dict[str, object]] = [
        {"prompt_ids": [1], "output_ids": [11]},
        {"messages": messages, "output_ids": [12]},
        {"match": "blue", "output_ids": [13]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    author = Author(renderer, fixed=read_answers(path))
    limits = Limits(max_tokens=1)

    def said(prompt: list[int], messages: object = None, text: str = "") -> list[int]:
        text = text or last_text(messages)
        answer = author.write(prompt, limits, messages=messages, text=text, seed=0)
        return answer.token_ids

    assert said([1], messages=messages) == [11]
    assert said([2], messages=messages) == [12]
    assert said([2], messages=[*messages, *messages]) == [13]
    assert said([2], text="true blue") == [13]
    assert said([2], text="red") not in ([11], [12], [13])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"match": "x", "output_ids": [1]}\nnonsense', "line 2"),
        (b'{"match": "x"}', "output_ids"),
        (b'{"match": "x", "output_ids": []}', "empty"),
        (b'{"output_ids": [1]}', "line 1: neither match"),
        (b'{"match": "x", "output_ids": [-1]}', "line 1: Expected `int` >= 0"),
        (b'{"match": "x", "output_ids": [4294967296]}', "line 1: Expected `int` <"),
        (b'{"prompt_ids": [-1], "output_ids": [1]}', "line 1: Expected `int` >= 0"),
        (None, "cannot read"),
    ],
)
def test_bad_file(tmp_path: Path, content: bytes | None, words: str) -> None:
    """A file that cannot be used is one clear line."""
    path = tmp_path / "answers.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadAnswers, match=words) as caught:
        read_answers(path)
    assert "\n" not in str(caught.value)
